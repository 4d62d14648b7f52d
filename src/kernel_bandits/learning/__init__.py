"""Learning a kernel from rewards: the evidence of a model, and the model with the most evidence."""
