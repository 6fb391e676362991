//! Fills columns from nested objects by their declared paths, and the rest column from fields that have no column.
//!
//! Tables with neither option do not use this code.

use std::collections::{HashMap, HashSet};

use types::name;

use super::{DecodeTarget, Decoder, NameTarget, at_end};
use crate::column::ValueFault;
use crate::parser::{DEPTH_MAX, Parser};
use crate::{names, out};

/// The extraction rules of a table, and the state of the current row.
pub(super) struct Extraction {
    nodes: Vec<Node>,
    /// The outermost fields of the paths, by name.
    roots: HashMap<String, usize>,
    /// The position of the rest column among the table's columns.
    rest: Option<usize>,
    /// The slot of each column of the table, if it has one.
    slots: Vec<Option<usize>>,
    /// Names of fields known to have no column, so that they are not looked up again.
    unmatched: HashSet<String>,
    /// The leftover fields of the current row as an unclosed JSON object, and the ranges of their names in it.
    leftover: Vec<u8>,
    leftover_names: Vec<(usize, usize)>,
}

/// A field on a path, at its end or before it.
#[derive(Default)]
struct Node {
    children: HashMap<String, usize>,
    /// The column whose path ends here.
    column: Option<usize>,
    /// The number of the last row that had this field, counted from 1; 0 if there is none.
    seen: usize,
}

/// The greatest number of remembered names without a column. Others are looked up each time.
const UNMATCHED_MAX: usize = 4_096;

impl Extraction {
    /// Builds the rules; `None` for a table without paths and without a rest column.
    pub fn of(target: DecodeTarget<'_>) -> Option<Box<Extraction>> {
        let def = target.def.filter(|def| !def.options.paths.is_empty() || def.options.rest.is_some())?;
        let columns = &def.schema.columns;
        // A reader of some columns only has the options of all columns.
        let place = |id| columns.iter().position(|column| column.id == id);
        let mut extract = Extraction {
            nodes: Vec::new(),
            roots: HashMap::new(),
            rest: def.options.rest.and_then(place),
            slots: vec![None; columns.len()],
            unmatched: HashSet::new(),
            leftover: Vec::new(),
            leftover_names: Vec::new(),
        };
        for (id, path) in &def.options.paths {
            let Some(column) = place(*id) else { continue };
            let mut at = None;
            for part in path.parts() {
                let next = extract.nodes.len();
                let children = match at {
                    None => &mut extract.roots,
                    Some(at) => {
                        let node: &mut Node = &mut extract.nodes[at];
                        &mut node.children
                    }
                };
                let node = *children.entry(part.clone()).or_insert(next);
                if node == next {
                    extract.nodes.push(Node::default());
                }
                at = Some(node);
            }
            if let Some(at) = at {
                extract.nodes[at].column = Some(column);
            }
        }
        Some(Box::new(extract))
    }

    /// Undoes the row of this number: slots from `slots` on no longer exist.
    pub fn undo_row(&mut self, slots: usize, row: usize) {
        self.slots.iter_mut().for_each(|slot| *slot = slot.filter(|slot| *slot < slots));
        self.nodes.iter_mut().for_each(|node| node.seen = node.seen.min(row));
    }

    /// Begins a field of the leftover object: writes its name.
    fn begin(&mut self, key: &str) {
        self.leftover.push(if self.leftover.is_empty() { b'{' } else { b',' });
        let start = self.leftover.len();
        out::json::string(key, &mut self.leftover);
        self.leftover_names.push((start, self.leftover.len()));
        self.leftover.push(b':');
    }

    /// Returns the name of a field that the leftover object has twice.
    fn repeated_name(&self) -> Option<String> {
        let name = |(start, end): &(usize, usize)| &self.leftover[*start..*end];
        let mut names: Vec<&[u8]> = self.leftover_names.iter().map(name).collect();
        names.sort_unstable();
        let twice = names.windows(2).find(|pair| pair[0] == pair[1])?;
        serde_json::from_slice(twice[0]).ok()
    }
}

impl Decoder<'_> {
    /// Reads a row, with or without extraction.
    pub(super) fn any_row(&mut self, p: &mut Parser<'_>) -> Result<(), ValueFault> {
        let Some(mut extract) = self.extract.take() else { return self.row(p) };
        extract.leftover.clear();
        extract.leftover_names.clear();
        let read = self.extracted_row(p, &mut extract);
        self.extract = Some(extract);
        read
    }

    fn extracted_row(&mut self, p: &mut Parser<'_>, extract: &mut Extraction) -> Result<(), ValueFault> {
        if !p.eat(b'{') {
            return p.malformed("an object (`{`) for each row").map_err(ValueFault::from);
        }
        self.check_size()?;
        let (mut first, mut scratch) = (true, String::new());
        while !at_end(p, b'}', &mut first)? {
            if p.peek() != Some(b'"') {
                return p.malformed("a field name in double quotes").map_err(ValueFault::from);
            }
            let key = p.string(&mut scratch)?;
            p.expect(b':', "`:`")?;
            self.field(key, p, extract)?;
        }
        if let Some(rest) = extract.rest.filter(|_| !extract.leftover.is_empty()) {
            if let Some(name) = extract.repeated_name() {
                let message = format!("the field `{}` is given twice", name::printable(&name));
                self.misfit(Some(name::printable(&name)), message)?;
            }
            extract.leftover.push(b'}');
            let slot = self.column_slot(rest, extract);
            let slot = &mut self.slots[slot];
            slot.seen = self.row + 1;
            slot.fill_up(self.row, &mut self.budget)?;
            slot.column.push_bytes(&extract.leftover, &mut self.budget)?;
        }
        self.row += 1;
        Ok(())
    }

    /// Reads the value of a field whose name was read before.
    fn field(&mut self, key: &str, p: &mut Parser<'_>, extract: &mut Extraction) -> Result<(), ValueFault> {
        let known = match self.by_key.get(key) {
            Some(slot) => Some(*slot),
            None if extract.unmatched.contains(key) => None,
            None => match self.find(key, names::columns(self.target)) {
                Some(NameTarget::Column(column)) if extract.rest == Some(column) => {
                    return self.rest_given(p, extract);
                }
                Some(NameTarget::Column(column)) => Some(self.column_slot(column, extract)),
                Some(NameTarget::Slot(slot)) => Some(slot),
                None => None,
            },
        };
        let root = extract.roots.get(key).copied();
        p.peek();
        let start = p.at();
        match (known, root) {
            (Some(slot), _) if extract.rest.is_some() && self.slots[slot].existing == extract.rest => {
                self.rest_given(p, extract)
            }
            (Some(slot), root) => {
                self.by_key.entry(key.to_owned()).or_insert(slot);
                self.value(slot, p)?;
                if let Some(root) = root {
                    p.rewind(start);
                    self.walk(root, p, extract, None, 1)?;
                }
                Ok(())
            }
            (None, Some(root)) => {
                let mut leftover = Vec::new();
                let has_leftover = self.walk(root, p, extract, Some(&mut leftover), 1)?;
                match (has_leftover, extract.rest) {
                    (false, _) => Ok(()),
                    (true, Some(_)) => {
                        extract.begin(key);
                        extract.leftover.append(&mut leftover);
                        Ok(())
                    }
                    // Leftover parts need a column of their own, which gets the whole field so that nothing is lost.
                    (true, None) => {
                        p.rewind(start);
                        self.new_field(key, p)
                    }
                }
            }
            (None, None) if extract.rest.is_some() => {
                let value = p.skip_below(1)?;
                extract.begin(key);
                extract.leftover.extend_from_slice(value.as_bytes());
                if extract.unmatched.len() < UNMATCHED_MAX {
                    extract.unmatched.insert(key.to_owned());
                }
                Ok(())
            }
            (None, None) => self.new_field(key, p),
        }
    }

    /// Reads a field that becomes a new column, or is refused.
    fn new_field(&mut self, key: &str, p: &mut Parser<'_>) -> Result<(), ValueFault> {
        match self.new_key(key)? {
            Some(slot) => self.value(slot, p),
            None => p.skip().map(drop).map_err(ValueFault::from),
        }
    }

    /// Returns the slot of a column of the table, and makes it if necessary.
    fn column_slot(&mut self, column: usize, extract: &mut Extraction) -> usize {
        if let Some(slot) = extract.slots[column] {
            return slot;
        }
        let slot = match self.slots.iter().position(|slot| slot.existing == Some(column)) {
            Some(slot) => slot,
            None => self.known_slot(column),
        };
        extract.slots[column] = Some(slot);
        slot
    }

    /// Reads the value of a field on a path. Parts that no path takes are appended to `leftover`, nested in objects as
    /// in the input. Returns true if there are any. `depth` is the number of objects around the field.
    fn walk(
        &mut self,
        node: usize,
        p: &mut Parser<'_>,
        extract: &mut Extraction,
        mut leftover: Option<&mut Vec<u8>>,
        depth: usize,
    ) -> Result<bool, ValueFault> {
        p.peek();
        let start = p.at();
        if std::mem::replace(&mut extract.nodes[node].seen, self.row + 1) > self.row {
            self.misfit(None, "a field that a path leads to is given twice".into())?;
            p.skip()?;
            return Ok(false);
        }
        if let Some(column) = extract.nodes[node].column {
            let slot = self.column_slot(column, extract);
            self.value(slot, p)?;
            if extract.nodes[node].children.is_empty() {
                return Ok(false);
            }
            // The column takes the whole value; longer paths read parts of it again.
            p.rewind(start);
            leftover = None;
        }
        let takes_all = extract.nodes[node].column.is_some();
        if p.peek() != Some(b'{') || depth >= DEPTH_MAX {
            let value = p.skip_below(depth.min(DEPTH_MAX))?;
            if let Some(leftover) = leftover {
                leftover.extend_from_slice(value.as_bytes());
            }
            return Ok(!takes_all && value != "null");
        }
        p.eat(b'{');
        let (mut first, mut any, mut scratch) = (true, false, String::new());
        if let Some(leftover) = &mut leftover {
            leftover.push(b'{');
        }
        while !at_end(p, b'}', &mut first)? {
            if p.peek() != Some(b'"') {
                return p.malformed("a field name in double quotes").map_err(ValueFault::from);
            }
            let key = p.string(&mut scratch)?;
            p.expect(b':', "`:`")?;
            let before = leftover.as_ref().map_or(0, |leftover| leftover.len());
            if let Some(leftover) = &mut leftover {
                if any {
                    leftover.push(b',');
                }
                out::json::string(key, leftover);
                leftover.push(b':');
            }
            let has_leftover = match extract.nodes[node].children.get(key).copied() {
                Some(child) => self.walk(child, p, extract, leftover.as_deref_mut(), depth + 1)?,
                None => {
                    let value = p.skip_below(depth + 1)?;
                    if let Some(leftover) = &mut leftover {
                        leftover.extend_from_slice(value.as_bytes());
                    }
                    // A null alone makes no new column.
                    extract.rest.is_some() || value != "null"
                }
            };
            any |= has_leftover;
            if let Some(leftover) = leftover.as_deref_mut().filter(|_| !has_leftover) {
                leftover.truncate(before);
            }
        }
        if let Some(leftover) = leftover {
            leftover.push(b'}');
        }
        Ok(any && !takes_all)
    }

    /// Reads a field with the name of the rest column: its members become leftover fields too.
    fn rest_given(&mut self, p: &mut Parser<'_>, extract: &mut Extraction) -> Result<(), ValueFault> {
        if p.eat_null()? {
            return Ok(());
        }
        if p.peek() != Some(b'{') {
            p.skip()?;
            let column = extract.rest.map(|at| names::columns(self.target)[at].name.clone());
            return self.misfit(
                column,
                "an object expected: the column takes the fields that no column takes".into(),
            );
        }
        p.eat(b'{');
        let (mut first, mut scratch) = (true, String::new());
        while !at_end(p, b'}', &mut first)? {
            if p.peek() != Some(b'"') {
                return p.malformed("a field name in double quotes").map_err(ValueFault::from);
            }
            let key = p.string(&mut scratch)?;
            p.expect(b':', "`:`")?;
            let value = p.skip_below(1)?;
            extract.begin(key);
            extract.leftover.extend_from_slice(value.as_bytes());
        }
        Ok(())
    }
}
