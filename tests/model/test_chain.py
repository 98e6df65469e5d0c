from __future__ import annotations

import json
import pickle
import stat
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onoff import Chain
from onoff.errors import ChainError, NotUnique
from onoff.testing import chains, tiny_entries

HEAD = b'{"format": "onoff-chain", "version": 1, '
GOOD = [[0.5, 0.5], [0.25, 0.75]]


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        ([[0.5, 0.5]], "shape (1, 2)"),
        ([[1.0]], "at least 2"),
        ([], "shape"),
        ([[0.5, 0.5], [0.5]], "rectangle"),
        ([[0.5, "x"], [0.5, 0.5]], "rectangle"),
        ([[0.5, float("nan")], [0.5, 0.5]], "row 0"),
        ([[0.5, 0.5], [-0.25, 1.25]], "has -0.25 in column 0: finite numbers of at least 0"),
        ([[0.5, 0.5], [0.5, 0.4]], "row 1 ('b') sums to 0.9"),
        ([[0.5, 0.5], [0.5, 0.5 + 1.1e-9]], "row 1"),
        ([[0.5, 0.5], [0.5, 10**400]], "rectangle"),
        ([["0.5", "0.5"], ["0.5", "0.5"]], "real numbers"),
        (np.array([[0.5, np.complex128(0.5)], [Fraction(1, 2), 0.5]], dtype=object), "real numbers"),
        ([[0.5, None], [0.5, 0.5]], "has nan in column 1"),
    ],
)
def test_a_matrix_that_is_no_chain_is_refused_in_words(matrix, words):
    with pytest.raises(ChainError, match=words.replace("(", r"\(").replace(")", r"\)")):
        Chain(matrix, ["a", "b"] if len(matrix) == 2 else None)


@pytest.mark.parametrize(
    "names", [["a", "a"], ["a"], ["a", ""], ["a", " b"], ["a", "b\n"], ["a", 3], "ab", ["a", "\ufeffb"], 5]
)
def test_bad_names_are_refused(names):
    with pytest.raises(ChainError):
        Chain(GOOD, names)


WRONG = {
    "symmetric with half a source": lambda c, rng: Chain.symmetric(2.5, 0.5),
    "symmetric with a string": lambda c, rng: Chain.symmetric(3, "x"),
    "half a step": lambda c, rng: c.simulate(1.5, rng),
    "a start between sources": lambda c, rng: c.simulate(3, rng, start=0.7),
    "symmetric with one source": lambda c, rng: Chain.symmetric(1, 0.5),
    "symmetric above one": lambda c, rng: Chain.symmetric(3, 1.1),
    "steps back": lambda c, rng: c.simulate(-1, rng),
    "a start elsewhere": lambda c, rng: c.simulate(5, rng, start=2),
    "no unique start": lambda c, rng: Chain(np.eye(2)).simulate(3, rng),
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
def test_wrong_types_and_values_are_refused(call):
    with pytest.raises(ChainError):
        call(Chain(GOOD), np.random.default_rng(1))


def test_a_chain_is_frozen_and_keeps_no_reference_to_its_input():
    matrix = np.array(GOOD)
    chain = Chain(matrix)
    matrix[0] = [1, 0]
    assert chain.P[0, 0] == 0.5
    with pytest.raises(ValueError, match="read-only"):
        chain.P[0, 0] = 1
    for array in (chain.P, chain.P.base):
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.setflags(write=True)
    with pytest.raises(AttributeError, match="frozen"):
        chain.P = matrix


def test_rows_nearly_one_are_renormalised_and_rows_at_one_are_untouched():
    off = np.array([[0.5, 0.5 + 5e-10], [0.1, 0.9]])
    chain = Chain(off)
    assert abs(Fraction(chain.P[0, 0]) + Fraction(chain.P[0, 1]) - 1) <= Fraction(2, 2**52)
    assert chain.P[0, 0] < 0.5
    assert (chain.P[1] == off[1]).all()
    # Four sources: off by three of the four units that are allowed, then by five.
    near = np.full((4, 4), 0.25)
    near[0, 3] += 3 * 2.0**-52
    near[1, 3] -= 3 * 2.0**-52
    near[2, 3] += 5 * 2.0**-52
    found = Chain(near).P
    assert (found[[0, 1, 3]] == near[[0, 1, 3]]).all()
    assert (found[2] != near[2]).any()
    assert Chain([[0.5, 0.5 + 0.9e-9], [0.5, 0.5 - 0.9e-9]]).n == 2


@given(chains())
def test_a_chain_made_of_a_chain_is_the_same_chain(chain):
    again = Chain(chain.P, chain.names)
    assert (again.P == chain.P).all()
    assert again == chain
    assert hash(again) == hash(chain)


def test_counts_become_rows_with_one_added_to_each_unless_told_otherwise():
    chain = Chain.from_counts([[3, 0], [1, 1]], ["a", "b"])
    assert chain.P.tolist() == [[0.8, 0.2], [0.5, 0.5]]
    assert Chain.from_counts([[3, 0], [1, 1]], ["a", "b"], smoothing=0).P[0].tolist() == [1, 0]


@pytest.mark.parametrize("smoothing", [0.0, 1.0])
def test_a_source_without_outgoing_counts_is_an_error(smoothing):
    with pytest.raises(ChainError, match=r"row 1 \('b'\) has no outgoing counts") as caught:
        Chain.from_counts([[3, 1], [0, 0]], ["a", "b"], smoothing)
    assert caught.value.row == 1


@given(chains(max_sources=6), st.integers(0, 5))
def test_power_is_repeated_multiplication(chain, k):
    expected = np.eye(chain.n)
    for _ in range(k):
        expected = expected @ chain.P
    assert np.allclose(chain.power(k), expected, rtol=1e-12, atol=0)


@given(chains())
def test_the_stationary_distribution_is_stationary_or_not_unique(chain):
    try:
        pi = chain.stationary()
    except NotUnique as error:
        a, b = error.classes[:2]
        reach = np.linalg.matrix_power((chain.P > 0) + np.eye(chain.n), chain.n) > 0
        assert not reach[a, b]
        assert not reach[b, a]
    else:
        assert pi.min() >= 0
        assert abs(pi.sum() - 1) < 1e-12
        assert np.allclose(pi @ chain.P, pi, rtol=1e-9, atol=1e-300)


def test_a_stationary_distribution_that_floats_cannot_hold_is_refused():
    with pytest.raises(ChainError, match="too unlikely; smooth the chain"):
        Chain([[0, 1, 0], [1e-200, 0, 1], [0, 1e-200, 1]]).stationary()


@given(tiny_entries(3))
def test_stationary_of_tiny_entries_is_right_to_the_last_digits(chain):
    try:
        pi = chain.stationary()
    except NotUnique:
        return
    # The tree formula: pi_i is proportional to the sum over spanning trees towards i of their products.
    P = [[Fraction(float(p)) for p in row] for row in chain.P]
    trees = [P[j][i] * P[k][i] + P[j][k] * P[k][i] + P[k][j] * P[j][i] for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1))]
    for found, weight in zip(pi, trees, strict=True):
        exact = weight / sum(trees)
        assert abs(Fraction(float(found)) - exact) <= exact / 10**14 + Fraction(1, 2**1074)


def test_simulate_follows_the_chain():
    chain = Chain([[0.0, 1.0, 0.0], [0.3, 0.0, 0.7], [1.0, 0.0, 0.0]])
    path = chain.simulate(20_000, np.random.default_rng(1))
    counts = np.zeros((3, 3))
    np.add.at(counts, (path[:-1], path[1:]), 1)
    assert (counts[chain.P == 0] == 0).all()
    # Six standard deviations: a false alarm with probability below 1e-8.
    assert abs(counts[1, 0] / counts[1].sum() - 0.3) < 6 * np.sqrt(0.21 / counts[1].sum())
    assert chain.simulate(5, np.random.default_rng(1), start=2).tolist()[:3] == [2, 0, 1]
    assert chain.simulate(0, np.random.default_rng(1)).tolist() == []


def test_simulating_starts_from_the_stationary_distribution():
    chain, rng = Chain([[0.5, 0.5, 0.0], [0.25, 0.5, 0.25], [0.0, 1.0, 0.0]]), np.random.default_rng(5)
    pi = chain.stationary()
    starts = np.bincount([chain.simulate(1, rng)[0] for _ in range(600)], minlength=3) / 600
    # Six standard deviations: a false alarm with probability below 1e-8.
    assert (abs(starts - pi) < 6 * np.sqrt(pi * (1 - pi) / 600)).all()
    assert (abs(starts - np.full(3, 1 / 3)) > 0.05).any()


@pytest.mark.parametrize(("draw", "path"), [(0.0, [1, 1, 1]), (1 - 2.0**-53, [2, 2, 2])])
def test_simulating_with_extreme_draws_takes_no_impossible_step(draw, path):
    class Extreme(np.random.Generator):
        def random(self, size=None):
            return draw if size is None else np.full(size, draw)

    third = 1 / 3
    chain = Chain([[0, third, 2 * third, 0], [0, 0.1, 0.9, 0], [0, 0.7, 0.3, 0], [1, 0, 0, 0]])
    assert chain.simulate(3, Extreme(np.random.PCG64(1))).tolist() == path


def test_the_fingerprint_is_stable_and_tells_chains_apart():
    chain = Chain(GOOD, ["a", "b"])
    # Written down once: it must be the same on every machine and in every version.
    assert chain.fingerprint == "ae7678c336609887b38d8caccf96d8cce1c3e59e558ef9702cf33e09437eda4f"
    assert Chain(GOOD, ["a", "c"]).fingerprint != chain.fingerprint
    assert Chain([[0.5, 0.5], [0.75, 0.25]], ["a", "b"]).fingerprint != chain.fingerprint
    assert Chain([[1, 0], [0, 1]]).fingerprint == Chain([[1, -0.0], [0, 1]]).fingerprint
    assert pickle.loads(pickle.dumps(chain)) == chain


@given(chains(), st.sampled_from([".json", ".csv", ".JSON"]))
def test_saving_and_loading_is_exact_to_the_bit(tmp_path_factory, chain, suffix):
    file = tmp_path_factory.mktemp("chain") / f"chain{suffix}"
    named = Chain(chain.P, [f'{i}, the "{i}th" ü' for i in range(chain.n)])
    named.save(file)
    loaded = Chain.load(file)
    assert loaded.P.tobytes() == named.P.tobytes()
    assert loaded.names == named.names
    assert loaded.fingerprint == named.fingerprint


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("c.csv", b"", "is empty"),
        ("c.csv", b"a,b\n0.5,0.5\n", "2 names in the header but 1 rows"),
        ("c.csv", b"a,b\n0.5,0.5\n0.5\n", "row 1 .* has 1 cells, the header 2$"),
        ("c.csv", b"a;b\n0.5;0.5\n0.5;0.5\n", r"is the separator a comma\?"),
        ("c.csv", b"a,b\na,0.5,0.5\nb,0.5,0.5\n", "row 0 .*no column of row names is wanted"),
        ("c.csv", b"user,source\n" + b"ann,news\n" * 5, "looks like a log of requests: `onoff fit` makes a chain"),
        ("c.csv", b"a,b\n0.5,x\n0.5,0.5\n", "row 0 .* has 'x'"),
        ("c.csv", b"a,b\n0.5,nan\n0.5,0.5\n", "row 0 .*nan"),
        ("c.csv", b"a,a\n0.5,0.5\n0.5,0.5\n", "both called 'a'"),
        ("c.csv", b"a,b\n3,1\n0,0\n", r"c.csv: row 1 .'b'. has no outgoing counts"),
        ("c.csv", b"a,b\n0.5,0.5\xff\n0.5,0.5\n", "not UTF-8"),
        ("c.csv", b'a,"b\n0.5,0.5\n', "not CSV"),
        ("c.json", b"{", "not JSON"),
        ("c.json", b"[" * 100_000, "c.json: cannot be read as JSON"),
        ("c.json", HEAD + b'"names": ["a", "b"], "matrix": [[1, 0], [0, ' + b"1" * 400 + b"]]}", "c.json: .*rectangle"),
        ("c.json", HEAD + b'"names": ["a", "b"], "matrix": [[1, 0], [1, 1]]}', "c.json: row 1 .'b'. sums to 2"),
        ("c.json", b"[1]", "format"),
        ("c.json", b'{"format": "onoff-chain", "version": 9}', "version 9"),
        ("c.json", b'{"format": "onoff-chain", "version": 1, "names": ["a", "b"]}', "matrix"),
        ("c.json", b'{"format": "onoff-chain", "version": 1, "names": ["a", "b"], "matrix": [[1, 0]]}', "row 0"),
        ("c.json", b'{"format": "onoff-chain", "version": 1, "names": [], "matrix": [[1, 0], ["1", 0]]}', "rectangle"),
        ("c.txt", b"", "ends in .json, .csv or .chain"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_in_words(tmp_path, name, data, words):
    file = tmp_path / name
    file.write_bytes(data)
    with pytest.raises(ChainError, match=words):
        Chain.load(file)


def test_a_missing_file_and_a_bad_ending(tmp_path):
    with pytest.raises(ChainError, match="cannot be read"):
        Chain.load(tmp_path / "none.csv")
    with pytest.raises(ChainError, match="ends in"):
        Chain(GOOD).save(tmp_path / "chain.txt")
    with pytest.raises(ChainError, match=r"nowhere/chain.csv: cannot be written \(no such file"):
        Chain(GOOD).save(tmp_path / "nowhere" / "chain.csv")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["\na,b\n\n0.5,0.5\n0.25,0.75\n\n", "\ufeffa,b\r\n0.5,0.5\r\n.25,75e-2\r\n"])
def test_a_csv_may_have_blank_lines_a_byte_order_mark_and_other_ends_of_lines(tmp_path, text):
    file = tmp_path / "chain.csv"
    file.write_bytes(text.encode())
    assert Chain.load(file) == Chain(GOOD, ["a", "b"])


def test_whole_numbers_in_a_csv_are_counts_and_that_is_said_unless_rows_sum_to_1(tmp_path, caplog):
    file = tmp_path / "counts.csv"
    file.write_text("a,b\n30,10\n0,5\n")
    with caplog.at_level("INFO", "onoff"):
        assert Chain.load(file) == Chain.from_counts([[30, 10], [0, 5]], ["a", "b"])
    assert [record.getMessage() for record in caplog.records] == [
        f"{file}: the whole numbers are taken for counts, and 1 is added to each"
    ]
    file.write_text("a,b\n0,1\n1,0\n")
    assert Chain.load(file).P.tolist() == [[0, 1], [1, 0]]


def test_saving_keeps_the_mode_of_a_file_and_follows_links(tmp_path):
    file, link = tmp_path / "chain.json", tmp_path / "link.json"
    link.symlink_to(file)
    for mode in (0o600, 0o664):
        Chain(GOOD).save(link)
        file.chmod(mode)
        Chain([[1, 0], [0, 1]]).save(link)
        assert link.is_symlink()
        assert stat.S_IMODE(file.stat().st_mode) == mode
        assert Chain.load(file).P[0, 0] == 1


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "chain.json"
    Chain(GOOD).save(file)
    before = file.read_bytes()
    monkeypatch.setattr("os.fsync", lambda descriptor: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(ChainError, match=r"chain.json: cannot be written \(disk full\)"):
        Chain([[1, 0], [0, 1]]).save(file)
    assert file.read_bytes() == before
    assert [f.name for f in tmp_path.iterdir()] == ["chain.json"]
    assert json.loads(before)["format"] == "onoff-chain"
