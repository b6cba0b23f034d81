"""What a trained model is worth: translations, metrics, early measurements. Imports checkpoints."""
