"""What fits a budget: exact counts where a space factorises, estimates elsewhere, fronts, and the nearest that fits."""
