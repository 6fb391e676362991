//! Checks the footer of a foreign Parquet file before a library parses it.
//!
//! A footer is one Thrift structure. The library that reads it builds a tree of the schema by recursion and reserves
//! memory for as many items as a list claims to have. A few kilobytes could therefore overflow a stack or exhaust
//! memory, and both abort the process. [`check`] walks the same bytes without recursion over the schema, and allocates
//! nothing in proportion to the claimed counts. Each known field must have the type that the format gives it, so that
//! a reader that trusts the format sees the same structure.

use crate::{Error, Kind, Result};

/// The deepest nesting of groups. A table's types nest [`crate::NESTING_MAX`] deep, each in two groups at most.
pub const DEPTH_MAX: usize = 64;
pub const FOOTER_BYTES_MAX: usize = 128 << 20;
/// The greatest number of row groups: the format numbers them with 16 bits.
const ROW_GROUPS_MAX: usize = 1 << 15;
/// Bytes at the end of the file: the length of the footer and the magic word.
const TAIL_BYTES: u64 = 8;
/// The deepest nesting of structures in fields that the format does not know.
const UNKNOWN_DEPTH_MAX: usize = 32;

/// Fails with [`Kind::Schema`] unless the footer of a file of `len` bytes is safe to parse and its row count equals
/// the sum over its row groups. `read` returns the requested number of bytes at an offset.
///
/// Bytes that do not form a footer pass this check; the library reports them.
pub fn check(len: u64, mut read: impl FnMut(u64, usize) -> Result<Vec<u8>>) -> Result<()> {
    let Some(tail_at) = len.checked_sub(TAIL_BYTES) else { return Ok(()) };
    let tail = read(tail_at, TAIL_BYTES as usize)?;
    let (Some(size), Some(b"PAR1")) = (tail.first_chunk::<4>(), tail.get(4..8)) else { return Ok(()) };
    let size = u32::from_le_bytes(*size) as usize;
    if size > FOOTER_BYTES_MAX {
        return Err(bad(format!("it has {size} bytes, more than {FOOTER_BYTES_MAX}")));
    }
    match tail_at.checked_sub(size as u64) {
        Some(at) => check_bytes(&read(at, size)?),
        None => Ok(()),
    }
}

fn bad(why: impl std::fmt::Display) -> Error {
    Error::new(Kind::Schema, format!("the footer of the Parquet file cannot be used: {why}"))
        .hint("write the file again with another program")
}

/// The type of a field, by the format's definition.
#[derive(Clone, Copy)]
enum Shape {
    Bool,
    I8,
    I16,
    I32,
    I64,
    Double,
    Binary,
    List(&'static Shape),
    Struct(&'static [(i16, Shape)]),
}

use Shape::{Binary, Bool, Double, I8, I16, I32, I64, List, Struct};

const EMPTY: Shape = Struct(&[]);
const TIME: Shape = Struct(&[(1, Bool), (2, Struct(&[(1, EMPTY), (2, EMPTY), (3, EMPTY)]))]);
const LOGICAL_TYPE: Shape = Struct(&[
    (5, Struct(&[(1, I32), (2, I32)])),
    (7, TIME),
    (8, TIME),
    (10, Struct(&[(1, I8), (2, Bool)])),
    (16, Struct(&[(1, I8)])),
    (17, Struct(&[(1, Binary)])),
    (18, Struct(&[(1, Binary), (2, I32)])),
]);
const PHYSICAL_TYPE: i16 = 1;
const NUM_CHILDREN: i16 = 5;
const SCHEMA_ELEMENT: Shape = Struct(&[
    (PHYSICAL_TYPE, I32),
    (2, I32),
    (3, I32),
    (4, Binary),
    (NUM_CHILDREN, I32),
    (6, I32),
    (7, I32),
    (8, I32),
    (9, I32),
    (10, LOGICAL_TYPE),
]);
const KEY_VALUE: Shape = Struct(&[(1, Binary), (2, Binary)]);
const STATISTICS: Shape =
    Struct(&[(1, Binary), (2, Binary), (3, I64), (4, I64), (5, Binary), (6, Binary), (7, Bool), (8, Bool)]);
const BOX: Shape = Struct(&[
    (1, Double),
    (2, Double),
    (3, Double),
    (4, Double),
    (5, Double),
    (6, Double),
    (7, Double),
    (8, Double),
]);
const COLUMN_METADATA: Shape = Struct(&[
    (1, I32),
    (2, List(&I32)),
    (3, List(&Binary)),
    (4, I32),
    (5, I64),
    (6, I64),
    (7, I64),
    (8, List(&KEY_VALUE)),
    (9, I64),
    (10, I64),
    (11, I64),
    (12, STATISTICS),
    (13, List(&Struct(&[(1, I32), (2, I32), (3, I32)]))),
    (14, I64),
    (15, I32),
    (16, Struct(&[(1, I64), (2, List(&I64)), (3, List(&I64))])),
    (17, Struct(&[(1, BOX), (2, List(&I32))])),
]);
const COLUMN_CHUNK: Shape = Struct(&[
    (1, Binary),
    (2, I64),
    (3, COLUMN_METADATA),
    (4, I64),
    (5, I32),
    (6, I64),
    (7, I32),
    (8, Struct(&[(1, EMPTY), (2, Struct(&[(1, List(&Binary)), (2, Binary)]))])),
    (9, Binary),
]);
const ROW_GROUP_ROWS: i16 = 3;
const ROW_GROUP: Shape = Struct(&[
    (1, List(&COLUMN_CHUNK)),
    (2, I64),
    (ROW_GROUP_ROWS, I64),
    (4, List(&Struct(&[(1, I32), (2, Bool), (3, Bool)]))),
    (5, I64),
    (6, I64),
    (7, I16),
]);
const CIPHER: Shape = Struct(&[(1, Binary), (2, Binary), (3, Bool)]);
const SCHEMA: i16 = 2;
const FILE_ROWS: i16 = 3;
const ROW_GROUPS: i16 = 4;
const FILE_METADATA: &[(i16, Shape)] = &[
    (1, I32),
    (SCHEMA, List(&SCHEMA_ELEMENT)),
    (FILE_ROWS, I64),
    (ROW_GROUPS, List(&ROW_GROUP)),
    (5, List(&KEY_VALUE)),
    (6, Binary),
    (7, List(&Struct(&[(1, EMPTY), (2, EMPTY)]))),
    (8, Struct(&[(1, CIPHER), (2, CIPHER)])),
    (9, Binary),
];

fn check_bytes(footer: &[u8]) -> Result<()> {
    let mut walker = Walker { rest: footer };
    let (mut id, mut rows, mut group_rows) = (0, None, 0i64);
    while let Some((field, wire)) = walker.field(id)? {
        id = field;
        match field {
            SCHEMA => walker.schema(wire)?,
            FILE_ROWS => rows = Some(walker.integer(I64, wire)?),
            ROW_GROUPS => group_rows = walker.row_groups(wire)?,
            _ => walker.known_or_not(FILE_METADATA, field, wire)?,
        }
    }
    match rows {
        Some(rows) if rows != group_rows => {
            Err(bad(format!("it claims {rows} rows, but its row groups have {group_rows}")))
        }
        _ => Ok(()),
    }
}

/// Walks Thrift's compact protocol.
struct Walker<'a> {
    rest: &'a [u8],
}

impl Walker<'_> {
    fn take(&mut self, count: usize) -> Result<&[u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(|| bad("it is cut off"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(bad("a number has more than 64 bits"))
    }

    fn zigzag(&mut self) -> Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Reads the id and the wire type of the next field; `None` at the end of the structure.
    fn field(&mut self, before: i16) -> Result<Option<(i16, u8)>> {
        let header = self.byte()?;
        let (delta, wire) = (i16::from(header >> 4), header & 0x0f);
        if wire == 0 {
            return Ok(None);
        }
        let id = match delta {
            0 => i16::try_from(self.zigzag()?).ok(),
            delta => before.checked_add(delta),
        };
        Ok(Some((id.ok_or_else(|| bad("a field's number is out of range"))?, wire)))
    }

    /// Reads the header of a list: the wire type of its items and their number. Each item takes at least one byte.
    fn list(&mut self) -> Result<(u8, usize)> {
        let header = self.byte()?;
        let count = match header >> 4 {
            15 => usize::try_from(self.varint()?).unwrap_or(usize::MAX),
            count => usize::from(count),
        };
        if count > self.rest.len() {
            return Err(bad(format!(
                "a list claims {count} items, but only {} bytes follow",
                self.rest.len()
            )));
        }
        Ok((header & 0x0f, count))
    }

    /// Reads the header of a list of structures and returns their number. Each structure must have at least one field,
    /// so that the memory reserved for the list is in proportion to its bytes.
    fn structs(&mut self, wire: u8) -> Result<usize> {
        if wire != List(&EMPTY).wire() {
            return Err(mistyped());
        }
        match self.list()? {
            (_, 0) => Ok(0),
            (item, count) if item == EMPTY.wire() => Ok(count),
            _ => Err(mistyped()),
        }
    }

    fn check_begun(&self) -> Result<()> {
        match self.rest.first() {
            Some(0) => Err(bad("an item of a list is empty")),
            _ => Ok(()),
        }
    }

    fn integer(&mut self, shape: Shape, wire: u8) -> Result<i64> {
        if wire == shape.wire() { self.zigzag() } else { Err(mistyped()) }
    }

    /// Checks the schema. It is a list of groups and columns in depth-first order; each group is followed by its
    /// children.
    fn schema(&mut self, wire: u8) -> Result<()> {
        let count = self.structs(wire)?;
        // The number of elements that each open group still lacks.
        let mut open: Vec<usize> = Vec::new();
        for at in 0..count {
            self.check_begun()?;
            while open.pop_if(|left| *left == 0).is_some() {}
            if let Some(left) = open.last_mut() {
                *left -= 1;
            }
            let (children, has_values) = self.schema_element()?;
            if at > 0 && children == 0 && !has_values {
                return Err(bad("its schema has a group without fields, which no table can hold"));
            }
            if children > count - at - 1 {
                return Err(bad("a group claims more fields than there are"));
            }
            if children > 0 {
                open.push(children);
            }
            if open.len() > DEPTH_MAX {
                return Err(bad(format!("its schema nests more than {DEPTH_MAX} levels deep")));
            }
        }
        Ok(())
    }

    /// Reads a schema element. Returns its number of children and whether it holds values itself.
    fn schema_element(&mut self) -> Result<(usize, bool)> {
        let Struct(fields) = SCHEMA_ELEMENT else { return Ok((0, false)) };
        let (mut id, mut children, mut has_values) = (0, 0, false);
        while let Some((field, wire)) = self.field(id)? {
            id = field;
            has_values |= field == PHYSICAL_TYPE;
            match field {
                NUM_CHILDREN => children = self.integer(I32, wire)?,
                _ => self.known_or_not(fields, field, wire)?,
            }
        }
        let children = usize::try_from(children);
        children.map(|n| (n, has_values)).map_err(|_| bad("a group claims a negative number of fields"))
    }

    /// Checks the row groups and returns the sum of their rows.
    fn row_groups(&mut self, wire: u8) -> Result<i64> {
        let Struct(fields) = ROW_GROUP else { return Ok(0) };
        let count = self.structs(wire)?;
        if count > ROW_GROUPS_MAX {
            return Err(bad(format!("it has {count} row groups, more than {ROW_GROUPS_MAX}")));
        }
        let mut rows = 0i64;
        for _ in 0..count {
            self.check_begun()?;
            let mut id = 0;
            while let Some((field, wire)) = self.field(id)? {
                id = field;
                match field {
                    ROW_GROUP_ROWS => rows = rows.saturating_add(self.integer(I64, wire)?),
                    _ => self.known_or_not(fields, field, wire)?,
                }
            }
        }
        Ok(rows)
    }

    fn known_or_not(&mut self, fields: &'static [(i16, Shape)], id: i16, wire: u8) -> Result<()> {
        match fields.iter().find(|(known, _)| *known == id) {
            Some((_, shape)) => self.value(*shape, wire),
            None => self.skip(wire, 0),
        }
    }

    /// Checks a field that the format defines. The shapes nest a few levels deep, which bounds the recursion.
    fn value(&mut self, shape: Shape, wire: u8) -> Result<()> {
        match shape {
            Bool if matches!(wire, 1 | 2) => Ok(()),
            _ if wire != shape.wire() => Err(mistyped()),
            List(item) => {
                let (wire, count) = self.list()?;
                for _ in 0..count {
                    if let Struct(_) = item {
                        self.check_begun()?;
                    }
                    self.value(*item, wire)?;
                }
                Ok(())
            }
            Struct(fields) => {
                let mut id = 0;
                while let Some((field, wire)) = self.field(id)? {
                    id = field;
                    self.known_or_not(fields, field, wire)?;
                }
                Ok(())
            }
            _ => self.skip(wire, 0),
        }
    }

    /// Skips a value, knowing only its wire type.
    fn skip(&mut self, wire: u8, depth: usize) -> Result<()> {
        if depth > UNKNOWN_DEPTH_MAX {
            return Err(bad("an unknown field nests too deep"));
        }
        match wire {
            1 | 2 => Ok(()),
            3 => self.byte().map(drop),
            4..=6 => self.varint().map(drop),
            7 => self.take(8).map(drop),
            8 => {
                let len = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
                self.take(len).map(drop)
            }
            9 => {
                let (item, count) = self.list()?;
                // Readers disagree on the number of bytes that such items take.
                if matches!(item, 1 | 2) && count > 0 {
                    return Err(bad("an unknown field is a list of booleans"));
                }
                (0..count).try_for_each(|_| self.skip(item, depth + 1))
            }
            12 => {
                let mut id = 0;
                while let Some((field, wire)) = self.field(id)? {
                    id = field;
                    self.skip(wire, depth + 1)?;
                }
                Ok(())
            }
            _ => Err(bad(format!("a field has the type {wire}, which the format does not use"))),
        }
    }
}

impl Shape {
    /// Thrift's number for the type in a field's header.
    fn wire(self) -> u8 {
        match self {
            Bool => 1,
            I8 => 3,
            I16 => 4,
            I32 => 5,
            I64 => 6,
            Double => 7,
            Binary => 8,
            List(_) => 9,
            Struct(_) => 12,
        }
    }
}

fn mistyped() -> Error {
    bad("a field has another type than the format defines")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a file that holds nothing but its footer.
    fn file(footer: &[u8]) -> Vec<u8> {
        [b"PAR1", footer, &(footer.len() as u32).to_le_bytes(), b"PAR1"].concat()
    }

    fn checked(file: &[u8]) -> Result<()> {
        check(file.len() as u64, |at, count| Ok(file[at as usize..][..count].to_vec()))
    }

    fn varint(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    }

    /// Makes the list of schema elements, given the number of children of each, as field 2 after field 1.
    fn schema(children: &[u64]) -> Vec<u8> {
        let mut bytes = [&[0x15, 2, 0x19, 0xfc][..], &varint(children.len() as u64)].concat();
        for count in children {
            // A physical type for columns; then repetition, name, number of children, end.
            bytes.extend(if *count == 0 { &[0x15, 2, 0x25, 0][..] } else { &[0x35, 0] });
            bytes.extend([0x18, 1, b'a', 0x15]);
            bytes.extend(varint(count * 2));
            bytes.push(0);
        }
        bytes
    }

    fn refused(footer: &[u8], said: &str) {
        let error = checked(&file(footer)).unwrap_err();
        assert_eq!(error.kind(), Kind::Schema);
        assert!(error.to_string().contains(said), "{said}: {error}");
    }

    /// An attacker with a write key could abort the process with such a file: the library that reads it recurses once
    /// for each group.
    #[test]
    fn a_schema_of_ten_thousand_nested_groups_is_refused() {
        let nested =
            |groups: usize| [schema(&[vec![1; groups], vec![0]].concat()), vec![0x16, 0, 0]].concat();
        checked(&file(&nested(DEPTH_MAX))).unwrap();
        refused(&nested(DEPTH_MAX + 1), "nests more than 64 levels deep");
        refused(&nested(10_000), "nests more than 64 levels deep");
        refused(&nested(1_000_000), "nests more than 64 levels deep");
        // Many columns at one level are not deep.
        checked(&file(&[schema(&[vec![20_000], vec![0; 20_000]].concat()), vec![0]].concat())).unwrap();
    }

    /// A group without fields was silently left out of the rows.
    #[test]
    fn a_group_without_fields_is_refused() {
        let element = |children: &[u8]| [&[0x35, 0, 0x18, 1, b'a'][..], children, &[0]].concat();
        let footer = [&[0x15, 2, 0x19, 0x2c][..], &element(&[0x15, 2]), &element(&[]), &[0]].concat();
        refused(&footer, "a group without fields");
    }

    /// The library reserves memory for as many items as a list claims, and a process that cannot get it aborts.
    #[test]
    fn a_list_that_says_it_has_more_than_its_bytes_can_hold_is_refused() {
        let many = varint(i32::MAX as u64);
        refused(&[&[0x15, 2, 0x19, 0xfc][..], &many].concat(), "2147483647 items");
        let whole = schema(&[1, 0]);
        refused(&[&whole[..], &[0x16, 0, 0x19, 0xfc], &many].concat(), "2147483647 items");
        refused(&[&whole[..], &[0x39, 0xfc], &many].concat(), "2147483647 items");
        refused(&schema(&[i32::MAX as u64, 0]), "more fields than there are");
        let empty_groups = [&whole[..], &[0x16, 0, 0x19, 0xfc], &varint(100)[..], &[0; 100]].concat();
        refused(&empty_groups, "an item of a list is empty");
    }

    /// A mistyped field hid a schema from this check: a reader that trusts the format goes on reading in the middle of
    /// it.
    #[test]
    fn a_field_of_another_type_than_the_format_says_is_refused() {
        refused(&[0x15, 2, 0x18, 1, b'x', 0], "another type");
        let element = |field: &[u8]| [&[0x15, 2, 0x19, 0x1c, 0x48, 1, b'a'][..], field, &[0, 0]].concat();
        checked(&file(&element(&[0x15, 0]))).unwrap();
        refused(&element(&[0x18, 1, b'x']), "another type");
        refused(&element(&[0x6c, 0x5c, 0x18, 1, b'x', 0, 0]), "another type");
    }

    /// `repeated_no_annotation.parquet` claims to have no rows, and has 6.
    #[test]
    fn rows_that_the_footer_does_not_count_are_not_left_out() {
        let groups = [0x19, 0x1c, 0x36, 12, 0];
        let file_rows = |rows: u8| [&schema(&[1, 0])[..], &[0x16, rows * 2], &groups, &[0]].concat();
        checked(&file(&file_rows(6))).unwrap();
        refused(&file_rows(0), "claims 0 rows, but its row groups have 6");
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let whole = [&schema(&[2, 1, 0, 0])[..], &[0x16, 12, 0x19, 0x1c, 0x36, 12, 0, 0]].concat();
        for at in 0..whole.len() {
            let _ = checked(&file(&whole[..at]));
            for bit in 0..8 {
                let mut flipped = whole.clone();
                flipped[at] ^= 1 << bit;
                let _ = checked(&file(&flipped));
            }
        }
        for short in [&b""[..], b"PAR1", b"\xff\xff\xff\x7fPAR1", b"\x08\0\0\0PAR1"] {
            let _ = checked(short);
        }
    }
}
