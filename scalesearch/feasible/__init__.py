"""What fits a budget: exact counts where a space factorizes, estimates elsewhere, fronts, and the nearest that fits."""
