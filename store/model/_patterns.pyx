# cython: language_level=3
"""Many subject patterns against subjects, and against each other, without comparing every pair.

The patterns are a tree by their tokens. A subject walks down the branches that its tokens and the wildcards lead to; a
set of patterns meets another by a walk down both trees at once. A walk goes level by level, so neither the depth of a
subject nor the number of its tokens is a depth of calls: clients choose both.

Where wildcards and tokens alternate on many levels, one subject may follow many branches at once. `is_wider_than` bounds
how many, over all subjects, so that a set is refused before it is used; a walk of two trees counts its steps and gives up
beyond `STEPS_PER_BRANCH` for each branch of both, so it costs what the two sets cost to build. Whether it gives up may
depend on the order in which patterns were added, so what is decided on all replicas asks without that bound, and the
leader has asked with it before it proposed. Source of the tree: nats-server server/sublist.go.
"""

cimport cython
from libc.stdint cimport UINT64_MAX, uint64_t

cdef enum:
    STEPS_PER_BRANCH = 8  # of a walk of two trees; patterns of one form take 1 or 2
    STEPS_MIN = 10_000    # of any such walk, under 1 ms


class TooManyCombinationsError(Exception):
    """The wildcards of two sets of patterns meet in too many ways to compare them."""


@cython.trashcan(True)  # a chain of branches is as long as a subject has tokens, and is freed without recursion
cdef class Branch:
    """What follows the tokens that lead here."""

    cdef bint goes_on(self) noexcept:
        """Whether there are tokens behind these."""
        return self.branches is not None or self.star is not None

    cdef bint has_more(self) noexcept:
        """Whether a pattern goes on behind these tokens, with tokens or `>`."""
        return self.tail is not None or self.goes_on()

    cdef bint is_bare(self) noexcept:
        return self.here is None and not self.has_more()


cdef class PatternTree:
    """Patterns with values. A pattern may have several values, and a value several patterns."""

    @classmethod
    def __class_getitem__(cls, item):
        """PatternTree[T]: the type of its values is for readers and type checkers."""
        return cls

    def __init__(self, patterns=(), value=True):
        """A tree of these patterns, each with this value."""
        self.root = Branch()
        for pattern in patterns:
            self.add(pattern, value)

    def __len__(self):
        return self.count

    def add(self, bytes pattern, value):
        """Add a pattern with a value; once more if it is there."""
        cdef Branch branch = self.root, following
        cdef list path = pattern.split(b".")
        cdef bytes token
        cdef bint is_tail = path[len(path) - 1] == b">"
        if is_tail:
            path.pop()
        for token in path:
            if token == b"*":
                if branch.star is None:
                    branch.star = Branch()
                    self.branches += 1
                branch = branch.star
                continue
            if branch.branches is None:
                branch.branches = {}
            following = branch.branches.get(token)
            if following is None:
                following = branch.branches[token] = Branch()
                self.branches += 1
            branch = following
        if is_tail:
            if branch.tail is None:
                branch.tail = []
            branch.tail.append(value)
        else:
            if branch.here is None:
                branch.here = []
            branch.here.append(value)
        self.count += 1
        self.width_bound += len(path) + 1

    def remove(self, bytes pattern, value):
        """Remove a pattern with a value that were added. Raises KeyError."""
        cdef list path = pattern.split(b"."), way = []
        cdef Branch branch = self.root, child
        cdef bytes token
        cdef list values
        cdef bint is_tail = path[len(path) - 1] == b">"
        if is_tail:
            path.pop()
        for token in path:
            way.append(branch)
            branch = branch.star if token == b"*" else (branch.branches or {}).get(token)
            if branch is None:
                raise KeyError(pattern)
        values = branch.tail if is_tail else branch.here
        if values is None or value not in values:
            raise KeyError(pattern)
        take_out(values, value)
        if not values:
            if is_tail:
                branch.tail = None
            else:
                branch.here = None
        self.count -= 1
        for token in reversed(path):
            child, branch = branch, way.pop()
            if not child.is_bare():
                return
            self.branches -= 1
            if token == b"*":
                branch.star = None
            else:
                del branch.branches[token]
                if not branch.branches:
                    branch.branches = None

    def matches(self, bytes subject):
        """Whether a pattern admits a literal subject."""
        return self.admits(subject)

    cdef bint admits(self, bytes subject) except -1:
        """The same, for compiled callers."""
        cdef list level = [self.root]
        cdef Branch branch
        for token in subject.split(b"."):
            level = next_level(level, token)
            if level is None:
                return True
            if not level:
                return False
        for branch in level:
            if branch.here is not None:
                return True
        return False

    def values(self, bytes subject):
        """The values of all patterns that admit a literal subject; one comes once for each of its patterns."""
        cdef list found = []
        for values in self._values_of(subject):
            found.extend(values)
        return found

    def any_of(self, bytes subject, holds):
        """Whether `holds` is true of a value of a pattern that admits a literal subject.

        The values of one pattern are asked in turn, beginning with the one of which it was true before: questions
        about many subjects in a row often have the same answer.
        """
        cdef list level = [self.root], following
        cdef Branch branch, child
        for token in subject.split(b"."):
            following = []
            for branch in level:
                if branch.tail is not None and ask(branch.tail, &branch.begin_tail, holds):
                    return True
                if branch.branches is not None:
                    child = branch.branches.get(token)
                    if child is not None:
                        following.append(child)
                if branch.star is not None:
                    following.append(branch.star)
            if not following:
                return False
            level = following
        for branch in level:
            if branch.here is not None and ask(branch.here, &branch.begin_here, holds):
                return True
        return False

    def covers(self, bytes pattern):
        """Whether one of the patterns admits every subject that this one admits."""
        cdef list level = [self.root], following, path = pattern.split(b".")
        cdef Branch branch, child
        for token in path:
            following = []
            for branch in level:
                if branch.tail is not None:
                    return True
                if token == b">":
                    continue
                if token != b"*" and branch.branches is not None:
                    child = branch.branches.get(token)
                    if child is not None:
                        following.append(child)
                if branch.star is not None:
                    following.append(branch.star)
            level = following
        for branch in level:
            if branch.here is not None:
                return True
        return False

    def overlaps(self, bytes pattern):
        """Whether one of the patterns admits a subject that this one admits."""
        return self.meets(PatternTree((pattern,)))

    def meets(self, PatternTree other not None, *, but=None, bint bounded=True):
        """Whether a pattern of this tree and one of the other admit a common subject.

        With `but`, patterns of this tree that have only this value do not count. Raises TooManyCombinationsError where
        it is `bounded`.
        """
        cdef uint64_t left = STEPS_MIN + STEPS_PER_BRANCH * <uint64_t>(self.branches + other.branches)
        if not bounded:
            left = UINT64_MAX
        cdef list ours = [self.root], others = [other.root], next_ours, next_others
        cdef Py_ssize_t at
        cdef Branch mine, theirs
        while ours:
            next_ours, next_others = [], []
            for at in range(len(ours)):
                mine, theirs = ours[at], others[at]
                if mine.here is not None and theirs.here is not None and has_other(mine.here, but):
                    return True
                if mine.tail is not None and theirs.has_more() and has_other(mine.tail, but):
                    return True
                if theirs.tail is not None and mine.has_more() and below_has_other(mine, but, &left):
                    return True
                pair_up(mine, theirs, next_ours, next_others)
                if left < <uint64_t>len(next_ours):
                    raise TooManyCombinationsError
            left -= len(next_ours)
            ours, others = next_ours, next_others
        return False

    def is_disjoint(self):
        """Whether no two of the patterns admit a common subject. Raises TooManyCombinationsError."""
        cdef uint64_t left = STEPS_MIN + STEPS_PER_BRANCH * <uint64_t>self.branches
        cdef list ones = [self.root], others = [self.root], next_ones, next_others
        cdef Py_ssize_t at
        cdef Branch one, other, child
        while ones:
            next_ones, next_others = [], []
            for at in range(len(ones)):
                one, other = ones[at], others[at]
                if one is not other:
                    if one.here is not None and other.here is not None:
                        return False
                    if (one.tail is not None and other.has_more()) or (other.tail is not None and one.has_more()):
                        return False
                    pair_up(one, other, next_ones, next_others)
                else:
                    if one.here is not None and len(one.here) > 1:
                        return False
                    if one.tail is not None and (len(one.tail) > 1 or one.goes_on()):
                        return False
                    if one.star is not None:
                        next_ones.append(one.star)
                        next_others.append(one.star)
                    if one.branches is not None:
                        for child in one.branches.values():
                            next_ones.append(child)
                            next_others.append(child)
                            if one.star is not None:
                                next_ones.append(one.star)
                                next_others.append(child)
                if left < <uint64_t>len(next_ones):
                    raise TooManyCombinationsError
            left -= len(next_ones)
            ones, others = next_ones, next_others
        return True

    def overlapping(self, bytes pattern):
        """The values of all patterns that overlap this one; one comes once for each of its patterns.

        The cost grows with what is found and, where this pattern has a wildcard, with the branches of that level.
        """
        cdef list found = [], level = [self.root], following, path = pattern.split(b".")
        cdef Branch branch, child
        for token in path:
            following = []
            for branch in level:
                if token == b">":
                    add_below(branch, found)
                    continue
                if branch.tail is not None:
                    found.extend(branch.tail)
                if branch.star is not None:
                    following.append(branch.star)
                if branch.branches is None:
                    continue
                if token == b"*":
                    following.extend(branch.branches.values())
                else:
                    child = branch.branches.get(token)
                    if child is not None:
                        following.append(child)
            level = following
        for branch in level:
            if branch.here is not None:
                found.extend(branch.here)
        return found

    def is_wider_than(self, Py_ssize_t limit):
        """Whether a literal subject may lead to more than so many branches, which bounds the steps of `matches`.

        Counted anew only when what was added since the last count may have passed the limit.
        """
        if self.width_bound > limit:
            self.width_bound = width_of(self.root)
        return self.width_bound > limit

    cdef list _values_of(self, bytes subject):
        cdef list level = [self.root], following, found = []
        cdef Branch branch, child
        for token in subject.split(b"."):
            following = []
            for branch in level:
                if branch.tail is not None:
                    found.append(branch.tail)
                if branch.branches is not None:
                    child = branch.branches.get(token)
                    if child is not None:
                        following.append(child)
                if branch.star is not None:
                    following.append(branch.star)
            level = following
            if not level:
                break
        for branch in level:
            if branch.here is not None:
                found.append(branch.here)
        return found


cdef list next_level(list level, token):
    """The branches behind one token of a literal subject; None when a `>` admits it already."""
    cdef list following = []
    cdef Branch branch, child
    for branch in level:
        if branch.tail is not None:
            return None
        if branch.branches is not None:
            child = branch.branches.get(token)
            if child is not None:
                following.append(child)
        if branch.star is not None:
            following.append(branch.star)
    return following


cdef bint ask(list values, Py_ssize_t *begin, holds) except -1:
    """Whether something is true of one of these values, beginning where it was true before."""
    cdef Py_ssize_t count = len(values), place = begin[0] if begin[0] < count else 0, i
    for i in range(count):
        if holds(values[place]):
            begin[0] = place
            return True
        place = place + 1 if place + 1 < count else 0
    return False


cdef inline bint has_other(list values, but) except -1:
    """Whether there is a value other than `but`."""
    if but is None:
        return True
    for value in values:
        if value != but:
            return True
    return False


cdef int pair_up(Branch one, Branch other, list ones, list others) except -1:
    """Add the pairs of branches, one behind each of these, to which a common subject can lead."""
    cdef Branch child, rival
    if one.star is not None:
        if other.star is not None:
            ones.append(one.star)
            others.append(other.star)
        if other.branches is not None:
            for rival in other.branches.values():
                ones.append(one.star)
                others.append(rival)
    if one.branches is None:
        return 0
    if other.star is not None:
        for child in one.branches.values():
            ones.append(child)
            others.append(other.star)
    if other.branches is None:
        return 0
    if len(one.branches) <= len(other.branches):
        for token, child in one.branches.items():
            rival = other.branches.get(token)
            if rival is not None:
                ones.append(child)
                others.append(rival)
    else:
        for token, rival in other.branches.items():
            child = one.branches.get(token)
            if child is not None:
                ones.append(child)
                others.append(rival)
    return 0


cdef bint below_has_other(Branch branch, but, uint64_t *left) except -1:
    """Whether a pattern that goes on behind these tokens has a value other than `but`; each branch is a step."""
    cdef list waiting = [branch]
    cdef Branch one
    if but is None:
        return True
    while waiting:
        one = waiting.pop()
        if one.tail is not None and has_other(one.tail, but):
            return True
        if one is not branch and one.here is not None and has_other(one.here, but):
            return True
        if one.star is not None:
            waiting.append(one.star)
        if one.branches is not None:
            waiting.extend(one.branches.values())
        if left[0] == 0:
            raise TooManyCombinationsError
        left[0] -= 1
    return False


cdef int add_below(Branch branch, list found) except -1:
    """Add the values of the patterns that go on behind these tokens."""
    cdef list waiting = [branch]
    cdef Branch one
    while waiting:
        one = waiting.pop()
        if one.tail is not None:
            found.extend(one.tail)
        if one is not branch and one.here is not None:
            found.extend(one.here)
        if one.star is not None:
            waiting.append(one.star)
        if one.branches is not None:
            waiting.extend(one.branches.values())
    return 0


cdef int take_out(list values, value) except -1:
    """Remove a value that is there; the last one takes its place."""
    cdef Py_ssize_t place = values.index(value)
    last = values.pop()
    if place < len(values):
        values[place] = last
    return 0


cdef Py_ssize_t width_of(Branch root) except -1:
    """One, and the width behind `*`, and the largest behind a token; children are finished before their parents."""
    cdef list order = [root]
    cdef Py_ssize_t at = 0, widest
    cdef Branch branch, child
    cdef dict widths = {}
    while at < len(order):
        branch = order[at]
        at += 1
        if branch.star is not None:
            order.append(branch.star)
        if branch.branches is not None:
            order.extend(branch.branches.values())
    for branch in reversed(order):
        widest = 0
        if branch.branches is not None:
            for child in branch.branches.values():
                widest = max(widest, <Py_ssize_t>widths[child])
        widths[branch] = 1 + widest + (<Py_ssize_t>widths[branch.star] if branch.star is not None else 0)
    return widths[root]
