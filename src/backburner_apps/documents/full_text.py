"""
The full-text index: FTS5 on SQLite, a tsvector with a GIN index on PostgreSQL.

Every word begins with the number of its owner. So a search reads the words of one
owner only, however many there are, and how rare a word is does not depend on others.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import sqlalchemy as sa

from backburner_apps.documents.words import is_letter

MOST_POSTINGS: Final = 10_000
"""
How many occurrences a search ranks. The most frequent words of a question are left
out where there would be more: they tell chunks apart the least.
"""
RANKED: Final = 400
"""Of the chunks with the rarest words, how many are ranked by their frequencies too."""


class Filters(NamedTuple):
    """Which chunks of an owner are searched; empty: all of them."""

    batch_id: str | None = None
    file_id: str | None = None

    @property
    def given(self) -> dict[str, str]:
        """What is filtered by, by column."""
        return {name: value for name, value in self._asdict().items() if value}


class Words(NamedTuple):
    """A chunk and its words."""

    seq: int
    words: Sequence[str]


class FullText(Protocol):
    """A full-text index over a connection."""

    def add(self, prefix: str, rows: Sequence[Words]) -> None:
        """Add the words of chunks."""

    def remove(self, seqs: Sequence[int]) -> None:
        """Remove chunks."""

    def clear(self) -> None:
        """Remove everything."""

    def find(
        self, terms: Sequence[str], filters: Filters, chunks: int, limit: int
    ) -> list[int]:
        """Return the chunks that match best, of an owner who has so many."""


def full_text(connection: Any) -> FullText:
    """Return the index of a connection's database."""
    is_sqlite = connection.dialect.name == "sqlite"
    return Fts5(connection) if is_sqlite else TsVector(connection)


def prefix_of(number: int) -> str:
    """Return what the words of an owner begin with, and those of no other."""
    digits = f"{number:x}".translate(_LETTERS)
    return f"{digits}z"


def term(prefix: str, word: str) -> str:
    """Return what a word of a question looks for; a single character begins words."""
    return f"{prefix}{word}*" if is_letter(word) else f"{prefix}{word}"


def rarest(counts: Mapping[str, int]) -> list[str]:
    """Return the words that a search ranks by: the rarest, as many as fit."""
    found = sorted((count, word) for word, count in counts.items() if count)
    kept, postings = list[str](), 0
    for count, word in found:
        postings += count
        if kept and postings > MOST_POSTINGS:
            break
        kept.append(word)
    return kept


_LETTERS: Final = str.maketrans("0123456789abcdef", "abcdefghijklmnop")


def _where(filters: Filters) -> str:
    return "".join(f" AND c.{name} = :{name}" for name in filters.given)


class Fts5:
    """FTS5, which ranks by BM25."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def add(self, prefix: str, rows: Sequence[Words]) -> None:
        insert = sa.text("INSERT INTO documents_words (rowid, words) VALUES (:s, :w)")
        separator = f" {prefix}"
        values = [
            {"s": row.seq, "w": prefix + separator.join(row.words)} for row in rows
        ]
        if values:
            self._connection.execute(insert, values)

    def remove(self, seqs: Sequence[int]) -> None:
        delete = sa.text("DELETE FROM documents_words WHERE rowid = :seq")
        if seqs:
            self._connection.execute(delete, [{"seq": seq} for seq in seqs])

    def clear(self) -> None:
        self._connection.execute(sa.text("DELETE FROM documents_words"))

    def find(
        self, terms: Sequence[str], filters: Filters, chunks: int, limit: int
    ) -> list[int]:
        del chunks
        chosen = rarest(self._counts(terms)) if terms else []
        if not chosen:
            return []
        query = " OR ".join(_quoted(each) for each in chosen)
        join = " JOIN documents_chunks c ON c.seq = w.rowid" if filters.given else ""
        statement = (
            f"SELECT w.rowid FROM documents_words w{join} "  # noqa: S608 - constants
            f"WHERE w.words MATCH :query{_where(filters)} ORDER BY w.rank LIMIT :limit"
        )
        values = {"query": query, "limit": limit, **filters.given}
        found = self._connection.execute(sa.text(statement), values)
        return [int(seq) for (seq,) in found]

    def _counts(self, terms: Iterable[str]) -> dict[str, int]:
        """Return in how many chunks each word is; one of a beginning counts as rare."""
        plain = [each for each in terms if not each.endswith("*")]
        count = sa.text(
            "SELECT term, doc FROM documents_words_counts WHERE term IN :terms"
        ).bindparams(sa.bindparam("terms", plain, expanding=True))
        counts = {str(row[0]): int(row[1]) for row in self._connection.execute(count)}
        return counts | {each: 1 for each in terms if each.endswith("*")}


def _quoted(each: str) -> str:
    return f'"{each[:-1]}" *' if each.endswith("*") else f'"{each}"'


class TsVector:
    """A tsvector, ranked by how rare the words are and how often a chunk has them."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def add(self, prefix: str, rows: Sequence[Words]) -> None:
        insert = sa.text(
            "INSERT INTO documents_words (seq, words) VALUES (:s, CAST(:w AS tsvector))"
        )
        values = [{"s": row.seq, "w": _vector(prefix, row.words)} for row in rows]
        if values:
            self._connection.execute(insert, values)

    def remove(self, seqs: Sequence[int]) -> None:
        delete = sa.text("DELETE FROM documents_words WHERE seq = ANY(:seqs)")
        self._connection.execute(delete, {"seqs": list(seqs)})

    def clear(self) -> None:
        self._connection.execute(sa.text("DELETE FROM documents_words"))

    def find(
        self, terms: Sequence[str], filters: Filters, chunks: int, limit: int
    ) -> list[int]:
        counts = self._counts([_lexeme(each) for each in terms])
        chosen = rarest(counts)
        if not chosen:
            return []
        weights = [_weight(counts[each], chunks) for each in chosen]
        values = {
            "terms": chosen,
            "weights": weights,
            "ranked": max(RANKED, limit),
            "limit": limit,
            **filters.given,
        }
        found = self._connection.execute(sa.text(_find(filters)), values)
        return [int(row[0]) for row in found]

    def _counts(self, terms: Sequence[str]) -> dict[str, int]:
        """Return in how many chunks each word is, up to more than are ranked."""
        values = {"terms": list(terms), "most": MOST_POSTINGS + 1}
        found = self._connection.execute(_COUNT, values)
        return {str(row[0]): int(row[1]) for row in found}


_COUNT: Final = sa.text(
    """
    SELECT t.term, n.found
      FROM unnest(CAST(:terms AS text[])) t(term), LATERAL (
        SELECT count(*) AS found FROM (
          SELECT 1 FROM documents_words WHERE words @@ CAST(t.term AS tsquery)
           LIMIT :most
        ) few
      ) n
    """
)


def _find(filters: Filters) -> str:
    join = "JOIN documents_chunks c ON c.seq = w.seq" if filters.given else ""
    return f"""
    WITH terms AS MATERIALIZED (
      SELECT CAST(term AS tsquery) AS term, weight
        FROM unnest(CAST(:terms AS text[]), CAST(:weights AS float8[]))
          AS t(term, weight)
    ), rarest AS MATERIALIZED (
      SELECT w.seq, sum(t.weight) AS weight
        FROM terms t CROSS JOIN LATERAL (
          SELECT seq FROM documents_words WHERE words @@ t.term
        ) w {join}
       WHERE true{_where(filters)}
       GROUP BY w.seq ORDER BY weight DESC, w.seq LIMIT :ranked
    )
    SELECT r.seq, sum(t.weight * ts_rank(w.words, t.term)) AS score
      FROM rarest r JOIN documents_words w USING (seq) CROSS JOIN terms t
     GROUP BY r.seq ORDER BY score DESC, r.seq LIMIT :limit
    """  # noqa: S608 - constants


def _weight(count: int, chunks: int) -> float:
    """Return what a word counts for: the more, the rarer it is (BM25's idf)."""
    return math.log(1 + (max(chunks, count) - count + 0.5) / (count + 0.5))


def _lexeme(each: str) -> str:
    return f"'{each[:-1]}':*" if each.endswith("*") else f"'{each}'"


def _vector(prefix: str, words: Sequence[str]) -> str:
    """Write a tsvector; words have letters and digits only, so none is escaped."""
    return " ".join(f"'{prefix}{word}':{at}" for at, word in enumerate(words, 1))
