"""
The full-text index: FTS5 on SQLite, a tsvector with a GIN index on PostgreSQL.

Every indexed word starts with the number of its owner. A search therefore reads only
the words of one owner, and the frequency of a word does not depend on other owners.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import sqlalchemy as sa

from backburner_apps.documents.ranking import Match
from backburner_apps.documents.words import is_letter

MOST_POSTINGS: Final = 10_000
"""
Maximum number of occurrences that a search ranks. If there are more, the most frequent
words of the question are ignored, as they distinguish chunks the least.
"""
MOST_READ: Final = 4_000
"""
Maximum number of occurrences by which PostgreSQL finds chunks. The other words of the
question, which are more frequent, only rank the chunks that are found. A search in one
file or batch finds chunks by these words, too.
"""
FREQUENT: Final = 1_000
"""
Number of chunks above which PostgreSQL's statistics tell the frequency of a word.
Counting the chunks of such a word takes longer than the rest of the search.
"""
RANKED: Final = 400
"""Number of chunks with the rarest words that are also ranked by frequency."""


class Filters(NamedTuple):
    """Restricts a search to a batch or a file; by default, all chunks are searched."""

    batch_id: str | None = None
    file_id: str | None = None

    @property
    def given(self) -> dict[str, str]:
        """The values to filter by, by column."""
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
    ) -> list[Match]:
        """
        Return the best matches of an owner who has `chunks` chunks in total.

        The score is the share of the question's words that a chunk contains, from 0 to
        1; rare words count more. The order also depends on their frequency in it.
        """


def full_text(connection: Any) -> FullText:
    """Return the index of a connection's database."""
    is_sqlite = connection.dialect.name == "sqlite"
    return Fts5(connection) if is_sqlite else TsVector(connection)


def prefix_of(number: int) -> str:
    """Return the unique prefix of an owner's words."""
    digits = f"{number:x}".translate(_LETTERS)
    return f"{digits}z"


def term(prefix: str, word: str) -> str:
    """Return the search term for a word; a single character matches as a prefix."""
    return f"{prefix}{word}*" if is_letter(word) else f"{prefix}{word}"


def rarest(counts: Mapping[str, int], most: int) -> list[str]:
    """Return the rarest words, up to a number of occurrences, but at least one."""
    found = sorted((count, word) for word, count in counts.items() if count)
    kept, postings = list[str](), 0
    for count, word in found:
        postings += count
        if kept and postings > most:
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
    ) -> list[Match]:
        counts = self._counts(terms) if terms else {}
        chosen = rarest(counts, MOST_POSTINGS)
        if not chosen:
            return []
        values = {
            "query": " OR ".join(_quoted(each) for each in chosen),
            "limit": limit,
            **{f"term{at}": _quoted(each) for at, each in enumerate(chosen)},
            **{
                f"share{at}": share
                for at, share in enumerate(_shares(chosen, terms, counts, chunks))
            },
            **filters.given,
        }
        statement = sa.text(_find_fts5(filters, len(chosen)))
        found = self._connection.execute(statement, values)
        return [Match(int(seq), float(share)) for seq, share in found]

    def _counts(self, terms: Iterable[str]) -> dict[str, int]:
        """Return the number of chunks with each word; a prefix counts as rare."""
        plain = [each for each in terms if not each.endswith("*")]
        count = sa.text(
            "SELECT term, doc FROM documents_words_counts WHERE term IN :terms"
        ).bindparams(sa.bindparam("terms", plain, expanding=True))
        counts = {str(row[0]): int(row[1]) for row in self._connection.execute(count)}
        return counts | {each: 1 for each in terms if each.endswith("*")}


def _find_fts5(filters: Filters, terms: int) -> str:
    join = "JOIN documents_chunks c ON c.seq = w.rowid" if filters.given else ""
    hits = " UNION ALL ".join(
        f"SELECT rowid AS seq, :share{at} AS share "  # noqa: S608 - constants
        f"FROM documents_words WHERE words MATCH :term{at}"
        for at in range(terms)
    )
    return f"""
    WITH best AS MATERIALIZED (
      SELECT w.rowid AS seq, w.rank AS place FROM documents_words w {join}
       WHERE w.words MATCH :query{_where(filters)} ORDER BY w.rank LIMIT :limit
    )
    SELECT best.seq, sum(hits.share) FROM ({hits}) AS hits JOIN best USING (seq)
     GROUP BY best.seq ORDER BY best.place, best.seq
    """  # noqa: S608 - constants


def _quoted(each: str) -> str:
    return f'"{each[:-1]}" *' if each.endswith("*") else f'"{each}"'


class TsVector:
    """A tsvector, ranked by inverse document frequency and frequency in the chunk."""

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
    ) -> list[Match]:
        lexemes = [_lexeme(each) for each in terms]
        counts = self._counts(lexemes)
        chosen = rarest(counts, MOST_POSTINGS)
        if not chosen:
            return []
        values = {
            "terms": chosen,
            "read": rarest(counts, MOST_POSTINGS if filters.given else MOST_READ),
            "weights": _shares(chosen, lexemes, counts, chunks),
            "ranked": max(RANKED, limit),
            "limit": limit,
            **filters.given,
        }
        found = self._connection.execute(sa.text(_find(filters)), values)
        return [Match(int(row.seq), float(row.share)) for row in found]

    def _counts(self, terms: Sequence[str]) -> dict[str, int]:
        """
        Return the number of chunks with each word, up to the maximum plus one.

        That of a frequent word is an estimate if the table has been analysed.
        """
        most = MOST_POSTINGS + 1
        values = {"terms": list(terms), "most": most, "frequent": FREQUENT}
        found = self._connection.execute(_COUNT, values)
        return {str(row[0]): min(int(row[1]), most) for row in found}


_COUNT: Final = sa.text(
    """
    WITH frequent AS MATERIALIZED (
      SELECT quote_literal(e.word) AS term, e.share * t.reltuples AS chunks
        FROM pg_class t
        JOIN pg_namespace n ON n.oid = t.relnamespace
        JOIN pg_stats s ON s.schemaname = n.nspname AND s.tablename = t.relname
       CROSS JOIN unnest(
               CAST(CAST(s.most_common_elems AS text) AS text[]),
               s.most_common_elem_freqs
             ) AS e(word, share)
       WHERE t.oid = to_regclass('documents_words') AND s.attname = 'words'
         AND e.share * t.reltuples > :frequent
    )
    SELECT t.term, coalesce(f.chunks, counted.chunks)
      FROM unnest(CAST(:terms AS text[])) AS t(term)
      LEFT JOIN frequent f USING (term)
     CROSS JOIN LATERAL (
        SELECT count(*) AS chunks FROM (
          SELECT 1 FROM documents_words
           WHERE f.term IS NULL AND words @@ CAST(t.term AS tsquery)
           LIMIT :most
        ) few
      ) counted
    """
)


def _find(filters: Filters) -> str:
    join = "JOIN documents_chunks c ON c.seq = w.seq" if filters.given else ""
    return f"""
    WITH terms AS MATERIALIZED (
      SELECT CAST(term AS tsquery) AS term, weight,
             term = ANY(CAST(:read AS text[])) AS is_read
        FROM unnest(CAST(:terms AS text[]), CAST(:weights AS float8[]))
          AS t(term, weight)
    ), rarest AS MATERIALIZED (
      SELECT w.seq, sum(t.weight) AS weight
        FROM terms t CROSS JOIN LATERAL (
          SELECT seq FROM documents_words WHERE words @@ t.term
        ) w {join}
       WHERE t.is_read{_where(filters)}
       GROUP BY w.seq ORDER BY weight DESC, w.seq LIMIT :ranked
    )
    SELECT r.seq, sum(t.weight) FILTER (WHERE w.words @@ t.term) AS share,
           sum(t.weight * ts_rank(w.words, t.term)) AS score
      FROM rarest r JOIN documents_words w USING (seq) CROSS JOIN terms t
     GROUP BY r.seq ORDER BY score DESC, r.seq LIMIT :limit
    """  # noqa: S608 - constants


def _shares(
    chosen: Sequence[str],
    terms: Sequence[str],
    counts: Mapping[str, int],
    chunks: int,
) -> list[float]:
    """Return the weight of each chosen word; the whole question has the weight 1."""
    total = sum(_weight(counts.get(each, 0), chunks) for each in terms)
    return [_weight(counts[each], chunks) / total for each in chosen]


def _weight(count: int, chunks: int) -> float:
    """Return the inverse document frequency of a word, as in BM25."""
    return math.log(1 + (max(chunks, count) - count + 0.5) / (count + 0.5))


def _lexeme(each: str) -> str:
    return f"'{each[:-1]}':*" if each.endswith("*") else f"'{each}'"


def _vector(prefix: str, words: Sequence[str]) -> str:
    """Format a tsvector; words have only letters and digits and need no escaping."""
    return " ".join(f"'{prefix}{word}':{at}" for at, word in enumerate(words, 1))
