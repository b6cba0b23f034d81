"""What a study file says, read and checked. May import trials' value types; no other room."""
