"""A pipeline interns every new word in two maps, word to id and id to word.

Its cache of documents is bounded and full.
"""

SOURCE = "explosion/spaCy#5083"
TRUTH = {
    "leaks": True,
    "cause": "global-cache",
    "causes_ok": ["container-growth"],
    "grows": "str",
    "holder": "strings",
    "holders_ok": ["_ids", "_words"],
    "bytes_per_run": 1210,
    "count_per_run": 8,
    "fix": "reload the pipeline now and then, or do not intern words that are out of the vocabulary",
}
SETUP = """
import collections, hashlib, random
random.seed(1)

class StringStore:
    def __init__(self):
        self._ids, self._words = {}, {}

    def add(self, word):
        if word not in self._ids:
            key = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), 'little')
            self._ids[word], self._words[key] = key, word
        return self._ids[word]

class Pipeline:
    def __init__(self, known=()):
        self.strings = StringStore()
        self.recent = collections.OrderedDict()
        for word in known:
            self.strings.add(word)

    def __call__(self, text):
        doc = [self.strings.add(word) for word in text.split()]
        self.recent[text] = doc
        while len(self.recent) > 6:
            self.recent.popitem(last=False)
        return doc

nlp = Pipeline('the a of and to'.split())

def sentence():
    return ' '.join(['the', 'of'] + ['%012x' % random.getrandbits(48) for _ in range(8)])
"""
CELL = """
doc = nlp(sentence())
"""
FIXED_CELL = """
doc = nlp('the of ' + ' '.join(random.choices('abcdefgh', k=8)))
"""
