"""A dictionary rule of one's own in a study. Run it by `kernel-bandits sweep examples/own_dictionary_rule.py`."""

from kernel_bandits.dictionaries import Dictionary, DictionaryRule, Proposal


class Newest(DictionaryRule):
    """Carry the model by the newest 200 points and up to 20 that came since."""

    def start(self, regularization, generator):
        return NewestPoints()


class NewestPoints(Dictionary):
    added = 0  # since the oldest have left

    def propose(self, candidate):
        return Proposal(draw=True, resample=self.added == 20)

    def commit(self, candidate, proposal, appended):
        self.added += 1

    def redraw(self, played):
        self.added = 0
        return played.points[-200:]


newest = {"name": "ek_ucb", "label": "newest", "options": {"dictionary": {"name": Newest}}}
study = {"environments": [{"name": "Chessboard"}], "policies": [newest, {"name": "ek_ucb"}], "seeds": 5, "horizon": 400}
