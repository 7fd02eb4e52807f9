"""Leaves: which files are replaced, and how the slots are dealt to new ones."""

import random

from wirelake.lake.gold.incremental.key_ranges import KeyRange, plan
from wirelake.lake.store.delta import File
from wirelake.lake.store.slots import SLOTS

ALL = range(SLOTS)


def file(first, last, rows=10):
    return File(f"batch-1/leaf-{first:04d}-{last:04d}-{'ab' * 16}.parquet", 100, rows)


def test_a_small_table_is_one_leaf():
    assert plan([], {5}, more=10).key_ranges == [KeyRange(0, SLOTS - 1)]


def test_what_touches_nothing_replaces_nothing():
    found = plan([file(0, SLOTS - 1)], set(), more=10)
    assert (found.removed, found.key_ranges) == ([], [])


def test_only_the_leaves_that_are_touched_are_replaced():
    files = [file(0, 99), file(100, 199), file(200, SLOTS - 1)]
    found = plan(files, {150}, more=1)
    assert found.removed == [files[1]]
    assert found.key_ranges == [KeyRange(100, 199)]


def test_a_leaf_that_would_grow_too_large_is_split():
    found = plan([file(0, SLOTS - 1, rows=900)], {1}, more=200, most=500)
    assert found.key_ranges == [KeyRange(0, 340), KeyRange(341, 681), KeyRange(682, 1023)]


def test_neighbours_that_are_small_become_one():
    files = [file(0, 99), file(100, 199), file(200, 299), file(300, SLOTS - 1)]
    found = plan(files, {50, 150, 500}, more=3)
    assert found.removed == [files[0], files[1], files[3]]
    assert found.key_ranges == [KeyRange(0, 199), KeyRange(300, SLOTS - 1)]


def test_a_range_without_rows_has_no_file_and_is_found_all_the_same():
    found = plan([file(0, 99), file(200, SLOTS - 1)], {120}, more=3)
    assert (found.removed, found.key_ranges) == ([], [KeyRange(100, 199)])


def test_files_from_before_there_were_leaves_are_replaced_together():
    files = [File("batch-1/part-00000.parquet", 1, 7), File("batch-1/part-00001.parquet", 1, 7)]
    found = plan(files, {3}, more=3)
    assert (found.removed, found.key_ranges) == (files, [KeyRange(0, SLOTS - 1)])


def test_leaves_never_overlap_and_cover_what_is_touched_however_often_they_are_replaced():
    chance = random.Random(11)
    files: list[File] = []
    for _ in range(300):
        slots = set(chance.sample(ALL, chance.choice((1, 3, 200))))
        found = plan(files, slots, more=chance.randrange(400), most=100)
        assert slots <= {slot for leaf in found.key_ranges for slot in leaf.slots}
        stays = [one for one in files if one not in found.removed]
        files = [*stays, *(file(leaf.first, leaf.last, chance.randrange(1, 150)) for leaf in found.key_ranges if chance.random() < 0.8)]
        covered = [slot for one in files for slot in range(int(one.path[13:17]), int(one.path[18:22]) + 1)]
        assert len(covered) == len(set(covered))
    assert len(files) > 20
