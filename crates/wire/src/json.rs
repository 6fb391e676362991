//! Rows as JSON: one object, an array of objects, or a sequence of objects (NDJSON).

mod extraction;
mod sift;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use types::schema::COLUMNS_MAX;
use types::{DataType, Error, Kind, Value, name};

use super::column::{ColumnBuffer, ValueFault, at_end, null_bytes};
use super::csv::BOM;
use super::parser::{Parser, SyntaxError};
use super::sift::newlines;
use super::{BadRow, Budget, DecodedRows, Limits, NewColumn, RefusedBody, StreamOffset, names, refused};

pub use super::DecodeTarget;
pub use sift::sift;

/// Decodes every row of a body. If any row is bad, none is taken, and the error names all bad rows, up to a limit.
pub fn decode(body: &[u8], target: DecodeTarget<'_>, limits: &Limits) -> Result<DecodedRows, RefusedBody> {
    let text = std::str::from_utf8(body).map_err(|cut| no_utf8(cut, limits))?;
    let mut decoder = Decoder::new(target, limits);
    let mut parser = Parser::new(text);
    parser.rewind(mark_len(body, limits));
    match decoder.body(&mut parser) {
        Ok(()) => {}
        Err(ValueFault::Malformed(malformed)) => return Err(decoder.malformed(b"", text, malformed)),
        Err(ValueFault::Limit(error)) => return Err(error.into()),
        // Enough bad rows were found.
        Err(ValueFault::Misfit(_)) => {}
    }
    decoder.finish()
}

/// Returns the length of the byte order mark at the beginning of a body. Only the first piece of a stream can have
/// one.
fn mark_len(body: &[u8], limits: &Limits) -> usize {
    if limits.before == StreamOffset::default() && body.starts_with(BOM) { BOM.len() } else { 0 }
}

fn no_utf8(cut: std::str::Utf8Error, limits: &Limits) -> Error {
    let byte = limits.before.bytes + cut.valid_up_to();
    Error::invalid(format!("the body is not UTF-8: byte {byte} is invalid")).hint("JSON is always UTF-8")
}

struct Decoder<'a> {
    target: DecodeTarget<'a>,
    limits: &'a Limits,
    slots: Vec<FieldSlot>,
    /// The slot of each spelling of a key met so far.
    by_key: HashMap<String, usize>,
    /// Columns and slots by lower-case name.
    folded: HashMap<String, NameTarget>,
    /// True once the table's columns are in `folded`.
    is_folded: bool,
    new_columns: usize,
    /// The slot of each field of the previous row, by the field's position.
    order: Vec<usize>,
    /// The number of rows before the current one.
    row: usize,
    /// Bytes that a row of nulls takes.
    row_bytes: usize,
    bad: Vec<BadRow>,
    /// The collected bad rows, if they are skipped.
    sift: Option<sift::SiftState>,
    /// The extraction of nested and leftover fields, if the table's options ask for it.
    extract: Option<Box<extraction::Extraction>>,
    hint: Option<String>,
    budget: Budget,
    scratch: String,
}

#[derive(Clone, Copy)]
enum NameTarget {
    /// A column of the table without a slot so far.
    Column(usize),
    Slot(usize),
}

struct FieldSlot {
    name: String,
    /// The key as the previous row spelled it, with quotes; empty if that spelling has escapes.
    quoted: Vec<u8>,
    /// The position among the table's columns; `None` for a new column.
    existing: Option<usize>,
    column: ColumnBuffer,
    /// The value for rows that lack the column.
    default: Option<Value>,
    /// The number of the last row that had this field, counted from 1; 0 if there is none.
    seen: usize,
}

impl FieldSlot {
    /// Appends the default or null for all rows before `row` that lack a value.
    fn fill_up(&mut self, row: usize, budget: &mut Budget) -> Result<(), ValueFault> {
        let missing = row - self.column.len;
        match &self.default {
            Some(value) => self.column.push_repeated(value, missing, budget),
            None => self.column.push_nulls(missing, budget),
        }
    }
}

impl<'a> Decoder<'a> {
    fn new(target: DecodeTarget<'a>, limits: &'a Limits) -> Self {
        let columns = names::columns(target);
        Decoder {
            target,
            limits,
            slots: Vec::new(),
            by_key: HashMap::new(),
            folded: HashMap::new(),
            is_folded: false,
            new_columns: 0,
            order: Vec::new(),
            row: 0,
            row_bytes: 16 + columns.iter().map(|c| null_bytes(&c.data_type)).sum::<usize>(),
            bad: Vec::new(),
            sift: None,
            extract: extraction::Extraction::of(target),
            hint: None,
            budget: Budget::new(limits.decoded_bytes_max),
            scratch: String::new(),
        }
    }

    fn body(&mut self, p: &mut Parser<'_>) -> Result<(), ValueFault> {
        if !self.limits.among_rows && p.eat(b'[') {
            let mut first = true;
            while !at_end(p, b']', &mut first)? {
                self.any_row(p)?;
            }
            if p.peek().is_some() {
                return p.malformed("the end of the body after `]`").map_err(ValueFault::from);
            }
            return Ok(());
        }
        while p.peek().is_some() {
            self.any_row(p)?;
        }
        Ok(())
    }

    fn row(&mut self, p: &mut Parser<'_>) -> Result<(), ValueFault> {
        if !p.eat(b'{') {
            return p.malformed("an object (`{`) for each row").map_err(ValueFault::from);
        }
        // The size is checked at each row, because a column that first appears late is filled with nulls for all rows
        // before it.
        self.check_size()?;
        let mut first = true;
        let mut place = 0;
        while !at_end(p, b'}', &mut first)? {
            let slot = match self.key(p, place)? {
                Some(slot) => slot,
                // The key cannot be a column; that was reported.
                None => {
                    p.skip()?;
                    continue;
                }
            };
            place += 1;
            self.value(slot, p)?;
        }
        self.row += 1;
        if self.row == 1 {
            self.reserve(p.at(), p.left());
        }
        Ok(())
    }

    /// Reserves room for rows like the first one, which took `first` bytes; `left` bytes are still to be read. The
    /// total is about the size of the body at most.
    fn reserve(&mut self, first: usize, left: usize) {
        let rows = left / first.max(1);
        if rows > 1 {
            self.slots.iter_mut().for_each(|slot| slot.column.reserve(rows));
        }
    }

    /// Reads the value of a field into its slot.
    #[inline(always)]
    fn value(&mut self, slot: usize, p: &mut Parser<'_>) -> Result<(), ValueFault> {
        let row = self.row;
        let slot_ref = &mut self.slots[slot];
        if slot_ref.seen > row {
            let message = format!("the field `{}` is given twice", name::printable(&slot_ref.name));
            let name = slot_ref.name.clone();
            self.misfit(Some(name), message)?;
            p.skip()?;
            return Ok(());
        }
        slot_ref.seen = row + 1;
        if slot_ref.column.len < row {
            slot_ref.fill_up(row, &mut self.budget)?;
        }
        p.peek();
        let start = p.at();
        match slot_ref.column.push_json(p, &mut self.budget) {
            Ok(()) => Ok(()),
            Err(ValueFault::Misfit(message)) => {
                let name = slot_ref.name.clone();
                p.rewind(start);
                let value = p.skip()?;
                self.suggest_fix(slot, value);
                self.misfit(Some(name), message)
            }
            Err(other) => Err(other),
        }
    }

    /// Reads a key and finds or makes its slot. `None` if the key cannot be a column.
    fn key(&mut self, p: &mut Parser<'_>, place: usize) -> Result<Option<usize>, ValueFault> {
        if let Some(&slot) = self.order.get(place)
            && !self.slots[slot].quoted.is_empty()
            && p.eat_key(&self.slots[slot].quoted)
        {
            return Ok(Some(slot));
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        if p.peek() != Some(b'"') {
            return p.malformed("a field name in double quotes").map_err(ValueFault::from);
        }
        let start = p.at();
        let key = p.string(&mut scratch)?;
        let raw_len = p.at() - start;
        p.expect(b':', "`:`")?;
        let slot = match self.by_key.get(key) {
            Some(&slot) => Some(slot),
            None => self.new_key(key)?,
        };
        if let Some(slot) = slot {
            let quoted = &mut self.slots[slot].quoted;
            quoted.clear();
            if raw_len == key.len() + 2 {
                quoted.push(b'"');
                quoted.extend_from_slice(key.as_bytes());
                quoted.push(b'"');
            }
            match self.order.get_mut(place) {
                Some(expected) => *expected = slot,
                // Gaps arise from refused keys; the body fails anyway.
                None => self.order.push(slot),
            }
        }
        self.scratch = scratch;
        Ok(slot)
    }

    /// Resolves a spelling that this body had not used yet: of an existing slot, of a column of the table, or of a new
    /// column.
    fn new_key(&mut self, key: &str) -> Result<Option<usize>, ValueFault> {
        let columns = self.target.def.map_or(&[][..], |def| &def.schema.columns);
        let (known, existing) = match self.find(key, columns) {
            Some(NameTarget::Slot(slot)) => (Some(slot), None),
            Some(NameTarget::Column(i)) => (self.slots.iter().position(|s| s.existing == Some(i)), Some(i)),
            None => (None, None),
        };
        let slot = match (known, existing) {
            (Some(slot), _) => slot,
            (None, Some(i)) => self.known_slot(i),
            (None, None) => {
                if let Err(refusal) = names::check_new(key, self.target) {
                    self.hint = self.hint.take().or(refusal.hint);
                    self.misfit(Some(name::printable(key)), refusal.message)?;
                    return Ok(None);
                }
                if columns.len() + self.new_columns >= COLUMNS_MAX {
                    let message = format!(
                        "row {} would give the table more than {COLUMNS_MAX} columns; `{}` is one too many",
                        self.row + 1,
                        name::printable(key)
                    );
                    if self.sift.is_some() {
                        self.misfit(Some(name::printable(key)), message)?;
                        return Ok(None);
                    }
                    let hint = "put rarely used fields into one nested object, which becomes a json column";
                    return Err(Error::new(Kind::Schema, message).hint(hint).into());
                }
                self.row_bytes += 8;
                self.new_columns += 1;
                self.check_size()?;
                let slot = self.slot(key, None, ColumnBuffer::untyped());
                self.folded.insert(key.to_lowercase(), NameTarget::Slot(slot));
                slot
            }
        };
        self.by_key.insert(key.to_owned(), slot);
        Ok(Some(slot))
    }

    /// Finds a column or slot by exact name, or else by name without case; no two columns differ only by case. The
    /// table's columns are put into the map only if a body needs it.
    fn find(&mut self, key: &str, columns: &[types::Column]) -> Option<NameTarget> {
        if columns.len() <= 64
            && let Some(i) = columns.iter().position(|c| c.name == key)
        {
            return Some(NameTarget::Column(i));
        }
        if !std::mem::replace(&mut self.is_folded, true) {
            for (i, column) in columns.iter().enumerate() {
                self.folded.entry(column.name.to_lowercase()).or_insert(NameTarget::Column(i));
            }
        }
        self.folded.get(&key.to_lowercase()).copied()
    }

    /// Makes a slot for a column of the table that has none.
    fn known_slot(&mut self, at: usize) -> usize {
        let known = &names::columns(self.target)[at];
        let slot = self.slot(&known.name, Some(at), ColumnBuffer::of(self.target.def, known));
        self.slots[slot].default.clone_from(&known.default);
        self.folded.insert(known.name.to_lowercase(), NameTarget::Slot(slot));
        slot
    }

    fn slot(&mut self, name: &str, existing: Option<usize>, column: ColumnBuffer) -> usize {
        let (name, quoted) = (name.to_owned(), Vec::new());
        self.slots.push(FieldSlot { name, quoted, existing, column, default: None, seen: 0 });
        self.slots.len() - 1
    }

    /// Checks the memory for nulls of absent columns. They are made only at the end, so a body that would need too
    /// many is refused early.
    fn check_size(&self) -> Result<(), Error> {
        Budget::new(self.limits.decoded_bytes_max).take(self.row.saturating_mul(self.row_bytes))
    }

    /// Records a bad row. Fails after enough of them.
    fn misfit(&mut self, column: Option<String>, message: String) -> Result<(), ValueFault> {
        if let Some(sift) = &mut self.sift {
            // The decoder stops at the first fault of the row.
            sift.why = Some((column, message));
            return Err(ValueFault::Misfit(String::new()));
        }
        let row = self.limits.before.rows + self.row + 1;
        if self.bad.last().is_none_or(|last| last.row != row) {
            self.bad.push(BadRow { row, line: None, column, message });
        }
        if self.bad.len() >= self.limits.bad_rows_max {
            Err(ValueFault::Misfit(String::new()))
        } else {
            Ok(())
        }
    }

    /// Sets a hint that tells how the column could take this value.
    fn suggest_fix(&mut self, slot: usize, value: &str) {
        if self.hint.is_some() {
            return;
        }
        let slot = &self.slots[slot];
        let Some(found) = slot.column.data_type() else { return };
        let wanted = match (value.as_bytes().first(), found) {
            (
                Some(b'"'),
                DataType::Bool | DataType::Int32 | DataType::Int64 | DataType::Float32 | DataType::Float64,
            ) => "string",
            (Some(b'{' | b'['), _) => "json",
            (Some(b'-' | b'0'..=b'9'), DataType::Int32) if !value.contains(['.', 'e', 'E']) => "int64",
            (Some(b'-' | b'0'..=b'9'), DataType::Int64) if !value.contains(['.', 'e', 'E']) => {
                "decimal(38,0)"
            }
            (Some(b'-' | b'0'..=b'9'), DataType::Int32 | DataType::Int64) => "float64",
            (Some(b'-' | b'0'..=b'9' | b't' | b'f'), DataType::String) => "json",
            _ => return,
        };
        let put = |column: &str| {
            let column = serde_json::Value::from(column);
            format!(
                r#"PUT /v1/tables/{} {{"columns":[{{"name":{column},"type":"{wanted}"}}]}}"#,
                self.target.table
            )
        };
        self.hint = Some(match slot.existing {
            None => format!("declare the column before the first row: {}", put(&slot.name)),
            Some(_) => {
                let other = format!("{}_{}", slot.name, wanted.split('(').next().unwrap_or(wanted));
                format!("a column keeps its type; add one and send the value as `{other}`: {}", put(&other))
            }
        });
    }

    /// Makes the error of a body that is not JSON. `passed` is the part of the body before `text`.
    fn malformed(&self, passed: &[u8], text: &str, malformed: SyntaxError) -> RefusedBody {
        let before = &self.limits.before;
        let row = before.rows + self.row + 1;
        let line = 1 + before.lines + newlines(passed) + newlines(&text.as_bytes()[..malformed.at]);
        let found = match text[malformed.at..].chars().next() {
            Some(c) => format!("`{}`", c.escape_debug()),
            None => "the end of the body".into(),
        };
        let message = format!(
            "row {row} is not JSON: {} expected at byte {} (line {line}), {found} found",
            malformed.expected,
            before.bytes + passed.len() + malformed.at
        );
        let error =
            Error::invalid(&message).hint("send an object, an array of objects, or one object a line");
        RefusedBody { error, rows: vec![BadRow { row, line: None, column: None, message }] }
    }

    fn finish(mut self) -> Result<DecodedRows, RefusedBody> {
        if !self.bad.is_empty() {
            return Err(refused(self.bad, self.limits, self.hint));
        }
        self.check_size()?;
        let rows = self.row;
        let (mut fields, mut arrays, mut new_columns) = (Vec::new(), Vec::new(), Vec::new());
        for mut slot in self.slots {
            match slot.fill_up(rows, &mut self.budget) {
                Ok(()) => {}
                Err(ValueFault::Limit(error)) => return Err(error.into()),
                Err(_) => unreachable!("nulls and defaults fit their columns"),
            }
            let data_type = slot.column.data_type().cloned();
            let (Some(data_type), Some(array)) = (data_type, slot.column.finish()?) else { continue };
            fields.push(Field::new(&slot.name, array.data_type().clone(), true));
            arrays.push(array);
            if slot.existing.is_none() {
                new_columns.push(NewColumn { name: slot.name, data_type });
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)
            .map_err(|e| Error::internal(format!("decoded rows do not form a batch: {e}")))?;
        Ok(DecodedRows { batch, new_columns })
    }
}

#[cfg(test)]
mod tests;
