"""A dictionary rule of one's own in a study. Run it by `kernel-bandits sweep examples/own_dictionary_rule.py`."""

from kernel_bandits.dictionaries import Dictionary, DictionaryRule, Proposal


class Newest(DictionaryRule):
    """Carry the model by the newest 200 points and up to 20 that came since."""

    def start(self, regularization, generator):
        return NewestPoints()


class NewestPoints(Dictionary):
    def __init__(self, added=0):
        self.added = added  # since the oldest have left

    def propose(self, candidate):
        return Proposal(draw=True, resample=self.added == 20)

    def after(self, candidate, proposal, appended):
        return type(self)(self.added + 1)

    def redrawn(self, played):
        return played.points[-200:], type(self)()


newest = {"name": "ek_ucb", "label": "newest", "options": {"dictionary": {"name": Newest}}}
study = {"environments": [{"name": "Chessboard"}], "policies": [newest, {"name": "ek_ucb"}], "seeds": 5, "horizon": 400}
