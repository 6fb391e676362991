//! Fills columns from nested objects by their declared paths, and the rest column from fields that have no column.
//!
//! Tables with neither option do not use this code.

use std::collections::{HashMap, HashSet};

use types::name;

use super::{Decoder, Named, Target, end_of};
use crate::column::Fault;
use crate::parser::{DEPTH_MAX, Parser};
use crate::{names, out};

/// The extraction rules of a table, and the state of the current row.
pub(super) struct Extract {
    nodes: Vec<Node>,
    /// The outermost fields of the paths, by name.
    roots: HashMap<String, usize>,
    /// The position of the rest column among the table's columns.
    rest: Option<usize>,
    /// The slot of each column of the table, if it has one.
    slots: Vec<Option<usize>>,
    /// Names of fields known to have no column, so that they are not looked up again.
    strangers: HashSet<String>,
    /// The leftover fields of the current row as an unclosed JSON object, and the ranges of their names in it.
    left: Vec<u8>,
    left_names: Vec<(usize, usize)>,
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
const STRANGERS_MAX: usize = 4_096;

impl Extract {
    /// Builds the rules; `None` for a table without paths and without a rest column.
    pub fn of(target: Target<'_>) -> Option<Box<Extract>> {
        let def = target.def.filter(|def| !def.options.paths.is_empty() || def.options.rest.is_some())?;
        let columns = &def.schema.columns;
        // A reader of some columns only has the options of all columns.
        let place = |id| columns.iter().position(|column| column.id == id);
        let mut extract = Extract {
            nodes: Vec::new(),
            roots: HashMap::new(),
            rest: def.options.rest.and_then(place),
            slots: vec![None; columns.len()],
            strangers: HashSet::new(),
            left: Vec::new(),
            left_names: Vec::new(),
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
    pub fn take_back(&mut self, slots: usize, row: usize) {
        self.slots.iter_mut().for_each(|slot| *slot = slot.filter(|slot| *slot < slots));
        self.nodes.iter_mut().for_each(|node| node.seen = node.seen.min(row));
    }

    /// Begins a field of the leftover object: writes its name.
    fn begin(&mut self, key: &str) {
        self.left.push(if self.left.is_empty() { b'{' } else { b',' });
        let start = self.left.len();
        out::json::string(key, &mut self.left);
        self.left_names.push((start, self.left.len()));
        self.left.push(b':');
    }

    /// Returns the name of a field that the leftover object has twice.
    fn twice(&self) -> Option<String> {
        let name = |(start, end): &(usize, usize)| &self.left[*start..*end];
        let mut names: Vec<&[u8]> = self.left_names.iter().map(name).collect();
        names.sort_unstable();
        let twice = names.windows(2).find(|pair| pair[0] == pair[1])?;
        serde_json::from_slice(twice[0]).ok()
    }
}

impl Decoder<'_> {
    /// Reads a row, with or without extraction.
    pub(super) fn any_row(&mut self, p: &mut Parser<'_>) -> Result<(), Fault> {
        let Some(mut extract) = self.extract.take() else { return self.row(p) };
        extract.left.clear();
        extract.left_names.clear();
        let read = self.extracted_row(p, &mut extract);
        self.extract = Some(extract);
        read
    }

    fn extracted_row(&mut self, p: &mut Parser<'_>, extract: &mut Extract) -> Result<(), Fault> {
        if !p.eat(b'{') {
            return p.malformed("an object (`{`) for each row").map_err(Fault::from);
        }
        self.check_size()?;
        let (mut first, mut scratch) = (true, String::new());
        while !end_of(p, b'}', &mut first)? {
            if p.peek() != Some(b'"') {
                return p.malformed("a field name in double quotes").map_err(Fault::from);
            }
            let key = p.string(&mut scratch)?;
            p.expect(b':', "`:`")?;
            self.field(key, p, extract)?;
        }
        if let Some(rest) = extract.rest.filter(|_| !extract.left.is_empty()) {
            if let Some(name) = extract.twice() {
                let message = format!("the field `{}` is given twice", name::printable(&name));
                self.misfit(Some(name::printable(&name)), message)?;
            }
            extract.left.push(b'}');
            let slot = self.column_slot(rest, extract);
            let slot = &mut self.slots[slot];
            slot.seen = self.row + 1;
            slot.fill_up(self.row, &mut self.budget)?;
            slot.column.bytes(&extract.left, &mut self.budget)?;
        }
        self.row += 1;
        Ok(())
    }

    /// Reads the value of a field whose name was read before.
    fn field(&mut self, key: &str, p: &mut Parser<'_>, extract: &mut Extract) -> Result<(), Fault> {
        let known = match self.by_key.get(key) {
            Some(slot) => Some(*slot),
            None if extract.strangers.contains(key) => None,
            None => match self.find(key, names::columns(self.target)) {
                Some(Named::Column(column)) if extract.rest == Some(column) => {
                    return self.rest_given(p, extract);
                }
                Some(Named::Column(column)) => Some(self.column_slot(column, extract)),
                Some(Named::Slot(slot)) => Some(slot),
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
                let mut left = Vec::new();
                let is_left = self.walk(root, p, extract, Some(&mut left), 1)?;
                match (is_left, extract.rest) {
                    (false, _) => Ok(()),
                    (true, Some(_)) => {
                        extract.begin(key);
                        extract.left.append(&mut left);
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
                extract.left.extend_from_slice(value.as_bytes());
                if extract.strangers.len() < STRANGERS_MAX {
                    extract.strangers.insert(key.to_owned());
                }
                Ok(())
            }
            (None, None) => self.new_field(key, p),
        }
    }

    /// Reads a field that becomes a new column, or is refused.
    fn new_field(&mut self, key: &str, p: &mut Parser<'_>) -> Result<(), Fault> {
        match self.new_key(key)? {
            Some(slot) => self.value(slot, p),
            None => p.skip().map(drop).map_err(Fault::from),
        }
    }

    /// Returns the slot of a column of the table, and makes it if necessary.
    fn column_slot(&mut self, column: usize, extract: &mut Extract) -> usize {
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

    /// Reads the value of a field on a path. Parts that no path takes are appended to `left`, nested in objects as in
    /// the input. Returns true if there are any. `depth` is the number of objects around the field.
    fn walk(
        &mut self,
        node: usize,
        p: &mut Parser<'_>,
        extract: &mut Extract,
        mut left: Option<&mut Vec<u8>>,
        depth: usize,
    ) -> Result<bool, Fault> {
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
            left = None;
        }
        let takes_all = extract.nodes[node].column.is_some();
        if p.peek() != Some(b'{') || depth >= DEPTH_MAX {
            let value = p.skip_below(depth.min(DEPTH_MAX))?;
            if let Some(left) = left {
                left.extend_from_slice(value.as_bytes());
            }
            return Ok(!takes_all && value != "null");
        }
        p.eat(b'{');
        let (mut first, mut any, mut scratch) = (true, false, String::new());
        if let Some(left) = &mut left {
            left.push(b'{');
        }
        while !end_of(p, b'}', &mut first)? {
            if p.peek() != Some(b'"') {
                return p.malformed("a field name in double quotes").map_err(Fault::from);
            }
            let key = p.string(&mut scratch)?;
            p.expect(b':', "`:`")?;
            let before = left.as_ref().map_or(0, |left| left.len());
            if let Some(left) = &mut left {
                if any {
                    left.push(b',');
                }
                out::json::string(key, left);
                left.push(b':');
            }
            let is_left = match extract.nodes[node].children.get(key).copied() {
                Some(child) => self.walk(child, p, extract, left.as_deref_mut(), depth + 1)?,
                None => {
                    let value = p.skip_below(depth + 1)?;
                    if let Some(left) = &mut left {
                        left.extend_from_slice(value.as_bytes());
                    }
                    // A null alone makes no new column.
                    extract.rest.is_some() || value != "null"
                }
            };
            any |= is_left;
            if let Some(left) = left.as_deref_mut().filter(|_| !is_left) {
                left.truncate(before);
            }
        }
        if let Some(left) = left {
            left.push(b'}');
        }
        Ok(any && !takes_all)
    }

    /// Reads a field with the name of the rest column: its members become leftover fields too.
    fn rest_given(&mut self, p: &mut Parser<'_>, extract: &mut Extract) -> Result<(), Fault> {
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
        while !end_of(p, b'}', &mut first)? {
            if p.peek() != Some(b'"') {
                return p.malformed("a field name in double quotes").map_err(Fault::from);
            }
            let key = p.string(&mut scratch)?;
            p.expect(b':', "`:`")?;
            let value = p.skip_below(1)?;
            extract.begin(key);
            extract.left.extend_from_slice(value.as_bytes());
        }
        Ok(())
    }
}
