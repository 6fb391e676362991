//! `on_error=skip`: rows that do not fit are skipped, and stored with the reason as dead letters in a table of their own, in the
//! same commit.

use engine::dead_letters::{self, DeadLetter};
use engine::{Op, View};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use types::{Error, RejectedRow, Result, TableDef, TableId, name};
use wire::{DecodeTarget, Limits, RefusedBody, SiftedRows, SkippedRow};

use super::media::Media;
use crate::failure::bad_row;

/// Number of bad rows that the answer names. The others are in the table of dead letters.
const NAMED_MAX: usize = 10;

/// The skipped rows of a request.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct SkippedRows {
    pub count: usize,
    /// The first of them, as JSON for the answer.
    reasons: Vec<Json>,
    /// The short name of the table that stores them.
    kept_in: String,
}

impl SkippedRows {
    pub fn of(skipped: &[SkippedRow], full_name: &str) -> Self {
        let reasons = skipped.iter().take(NAMED_MAX).map(|skipped| bad_row(&skipped.bad)).collect();
        SkippedRows {
            count: skipped.len(),
            reasons,
            kept_in: name::short_table_name(&dead_letters::table_of(full_name)).to_owned(),
        }
    }

    /// Adds the skipped rows of a later piece.
    pub fn add(&mut self, more: SkippedRows) {
        self.count += more.count;
        let room = NAMED_MAX.saturating_sub(self.reasons.len());
        self.reasons.extend(more.reasons.into_iter().take(room));
        if self.kept_in.is_empty() {
            self.kept_in = more.kept_in;
        }
    }

    /// Adds the fields about skipped rows to an answer.
    pub fn add_to(&self, answer: &mut Json) {
        answer["skipped"] = json!(self.count);
        if self.count > 0 {
            answer["dead_letters"] = json!(self.kept_in);
            answer["reasons"] = json!(self.reasons);
        }
    }
}

/// Checks that bad rows of a table can be stored at all, before there is one.
pub fn check(full_name: &str, def: Option<&TableDef>) -> Result<()> {
    dead_letters::check(full_name, def).map_err(|error| {
        let hint = match error.hint_text() {
            Some(other) => format!("{other}, or leave on_error=skip out"),
            None => "leave on_error=skip out".to_owned(),
        };
        error.hint(hint)
    })
}

/// Decodes a body into the rows that fit its table and the skipped ones.
pub fn sift(
    media: Media,
    body: &[u8],
    target: DecodeTarget<'_>,
    limits: &Limits,
    full_name: &str,
) -> Result<SiftedRows, RefusedBody> {
    let (mut sifted, unfit) = unfit(media, body, target, limits, full_name, usize::MAX)?;
    sifted.leave_out(body, unfit)?;
    Ok(sifted)
}

/// Returns the refusal of a body with the rows that do not fit its table, up to a limit; `None` if all rows fit.
pub fn refuse(
    media: Media,
    body: &[u8],
    target: DecodeTarget<'_>,
    limits: &Limits,
    full_name: &str,
) -> Result<Option<RefusedBody>, RefusedBody> {
    let (sifted, unfit) = unfit(media, body, target, limits, full_name, limits.bad_rows_max)?;
    Ok(sifted.refuse(body, unfit, limits)?)
}

/// Decodes the readable rows of a body, and returns the first `max` of them that do not fit its table.
fn unfit(
    media: Media,
    body: &[u8],
    target: DecodeTarget<'_>,
    limits: &Limits,
    full_name: &str,
    max: usize,
) -> Result<(SiftedRows, Vec<RejectedRow>), RefusedBody> {
    let sifted = media.sift(body, target, limits)?;
    let mut def = target.def.cloned().unwrap_or_else(|| TableDef::new(TableId(0), full_name));
    for column in &sifted.rows.new_columns {
        def.add_column(&column.name, &column.data_type, true, None)?;
    }
    let unfit = table::unfit(&sifted.rows.batch, &def, max)?;
    Ok((sifted, unfit))
}

/// Refuses the name of a view, because rows cannot be inserted into a view.
pub fn refuse_view(view: &View, full_name: &str, hint: &str) -> Result<()> {
    let Some(known) = view.view(full_name) else { return Ok(()) };
    let short = name::short_table_name(&known.name);
    Err(Error::invalid(format!("`{short}` is a view, not a table")).hint(hint))
}

/// Returns the operations that store the bad rows. Their table is made with the first of them.
pub fn insert_ops(
    view: &View,
    full_name: &str,
    def: Option<&TableDef>,
    skipped: &[SkippedRow],
) -> Result<Vec<Op>> {
    let letters: Vec<DeadLetter<'_>> = skipped.iter().map(letter).collect();
    let table = dead_letters::table_of(full_name);
    let dead = view.find(&table);
    if dead.is_none() && !skipped.is_empty() {
        refuse_view(view, &table, "rename it: bad rows go into a table of that name")?;
    }
    dead_letters::insert_ops(full_name, def, dead.as_ref().map(|dead| dead.def().as_ref()), &letters)
}

fn letter(skipped: &SkippedRow) -> DeadLetter<'_> {
    let SkippedRow { bad, raw } = skipped;
    DeadLetter { at_row: Some(bad.row), column: bad.column.as_deref(), reason: &bad.message, raw }
}
