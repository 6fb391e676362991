//! The dead rows of a piece: those that are no longer in the table.

use std::sync::Arc;

use arc_swap::ArcSwap;
use table::Snapshot;
use table::materializer::Checkpoint;
use tantivy::TERMINATED;
use tantivy::schema::Term;
use types::{Kind, Result, RowId};

use super::piece::TextPiece;
use super::postings::{Postings, PostingsDetail};

/// The number of terms in the cache of [`DeadDocs`]. When it is full, the cache is emptied.
const CACHE_TERMS_MAX: usize = 4_096;

/// The dead documents of one piece at some lsn, as an immutable value that readers share.
pub(super) struct DeadDocs {
    bits: Vec<u64>,
    count: u32,
    /// Number of words in the dead documents, for each column.
    tokens: Vec<u64>,
    /// Cache of the number of dead documents that contain a term. The numbers never change during the life of this
    /// value (O1).
    dead_df: ArcSwap<imbl::HashMap<Term, u32>>,
}

impl DeadDocs {
    pub fn none(piece: &TextPiece) -> DeadDocs {
        DeadDocs {
            bits: Vec::new(),
            count: 0,
            tokens: vec![0; piece.columns.len()],
            dead_df: Default::default(),
        }
    }

    /// Returns a copy with these documents dead too, or `None` if all of them were dead already.
    pub fn with(&self, piece: &TextPiece, docs: impl IntoIterator<Item = u32>) -> Option<DeadDocs> {
        let mut more: Option<DeadDocs> = None;
        for doc in docs {
            if self.contains(doc) {
                continue;
            }
            let dead = more.get_or_insert_with(|| DeadDocs {
                bits: self.bits.clone(),
                count: self.count,
                tokens: self.tokens.clone(),
                dead_df: Default::default(),
            });
            if dead.bits.is_empty() {
                dead.bits = vec![0; (piece.docs() as usize).div_ceil(64)];
            }
            if !dead.contains(doc) {
                dead.bits[doc as usize / 64] |= 1 << (doc % 64);
                dead.count += 1;
                for (tokens, column) in dead.tokens.iter_mut().zip(&piece.columns) {
                    *tokens += column.length(doc);
                }
            }
        }
        more
    }

    pub fn contains(&self, doc: u32) -> bool {
        self.bits.get(doc as usize / 64).is_some_and(|word| word & 1 << (doc % 64) != 0)
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    pub fn tokens(&self, column: usize) -> u64 {
        self.tokens[column]
    }

    fn docs(&self) -> impl Iterator<Item = u32> + '_ {
        self.bits.iter().enumerate().flat_map(|(at, word)| {
            let mut word = *word;
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros())?;
                word &= word - 1;
                Some(at as u32 * 64 + bit)
            })
        })
    }

    /// Returns the number of live documents of the piece that contain a term.
    pub fn live_df(&self, piece: &TextPiece, column: usize, term: &Term) -> Result<u64> {
        let column = &piece.columns[column].column;
        let df = column.df(term)?;
        if df == 0 || self.count == 0 {
            return Ok(df.into());
        }
        let known = self.dead_df.load();
        let dead = match known.get(term) {
            Some(dead) => *dead,
            None => {
                let postings = column.postings(term, PostingsDetail::Documents)?;
                let dead = postings.map_or(0, |postings| self.count_in(postings));
                self.dead_df.rcu(|known| {
                    let known = &**known;
                    let mut known =
                        if known.len() < CACHE_TERMS_MAX { known.clone() } else { Default::default() };
                    known.insert(term.clone(), dead);
                    known
                });
                dead
            }
        };
        Ok(u64::from(df - dead))
    }

    /// Counts the dead documents in a posting list. Iterates over the shorter of the two.
    fn count_in(&self, mut postings: Postings<'_>) -> u32 {
        let mut count = 0;
        if postings.df() / 8 <= self.count {
            let mut doc = postings.doc();
            while doc != TERMINATED {
                count += u32::from(self.contains(doc));
                doc = postings.advance();
            }
            return count;
        }
        for doc in self.docs() {
            if postings.doc() < doc {
                postings.seek(doc);
            }
            count += u32::from(postings.doc() == doc);
        }
        count
    }
}

/// A piece with its dead documents.
#[derive(Clone)]
pub(super) struct PieceView {
    pub piece: Arc<TextPiece>,
    pub dead: Arc<DeadDocs>,
}

impl PieceView {
    pub fn new(piece: Arc<TextPiece>) -> PieceView {
        let dead = Arc::new(DeadDocs::none(&piece));
        PieceView { piece, dead }
    }

    pub fn without(mut self, docs: impl IntoIterator<Item = u32>) -> PieceView {
        if let Some(dead) = self.dead.with(&self.piece, docs) {
            self.dead = Arc::new(dead);
        }
        self
    }

    pub fn live(&self) -> u64 {
        u64::from(self.piece.docs() - self.dead.count())
    }
}

/// The rows that were deleted after a checkpoint.
pub(super) enum DeletedRows {
    /// The deleted rows, ascending.
    Rows(Vec<RowId>),
    /// The table no longer remembers deletes that far back. The snapshot must be asked for each row.
    Unknown,
}

impl DeletedRows {
    pub fn since(table: &Snapshot, checkpoint: &Checkpoint) -> Result<DeletedRows> {
        match table.deleted_since(checkpoint) {
            Ok(rows) => Ok(DeletedRows::Rows(rows)),
            Err(error) if error.kind() == Kind::NotFound => Ok(DeletedRows::Unknown),
            Err(error) => Err(error),
        }
    }

    pub fn is_none(&self) -> bool {
        matches!(self, DeletedRows::Rows(rows) if rows.is_empty())
    }

    /// Returns the piece with the dead documents that `table` sees.
    pub fn apply(&self, table: &Snapshot, view: PieceView) -> Result<PieceView> {
        match self {
            DeletedRows::Rows(rows) => {
                let from = rows.partition_point(|row| *row < view.piece.head.first);
                let to = rows.partition_point(|row| *row <= view.piece.head.last);
                if from == to {
                    return Ok(view);
                }
                let piece = view.piece.clone();
                Ok(view.without(rows[from..to].iter().filter_map(|row| piece.doc(*row))))
            }
            DeletedRows::Unknown => {
                let piece = view.piece.clone();
                let mut dead = Vec::new();
                for doc in 0..piece.docs() {
                    if !table.is_live(piece.row(doc))? {
                        dead.push(doc);
                    }
                }
                Ok(view.without(dead))
            }
        }
    }
}
