"""Plans: a proposed survey, the adviser, the forecast of accuracy, the changes from one survey to another."""
