"""The problems of the Deep Bayesian Bandits Showdown, beside published figures."""
