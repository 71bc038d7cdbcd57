"""Plans: a proposed survey, the adviser, the next survey, the forecast of accuracy, the size of a deployment."""
