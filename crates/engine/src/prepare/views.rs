//! CREATE VIEW and DROP VIEW: checks the name and the size of a view.

use types::{Error, Result, ViewDef, name};

use super::{PreparedOp, Preparer, encoded_bytes};

impl Preparer<'_> {
    pub(super) fn put_view(&mut self, mut view: ViewDef, replace: bool) -> Result<PreparedOp> {
        view.name = self.new_name(&view.name, "view")?;
        view.check()?;
        self.take_room(encoded_bytes(|e| {
            view.encode(e);
            view.encode_reads(e);
        }))?;
        self.bytes += view.query.len() as u64;
        Ok(PreparedOp::PutView { view, replace })
    }

    pub(super) fn drop_view(&mut self, wanted: &str, if_exists: bool) -> Result<PreparedOp> {
        let full_name = self.droppable_name(wanted)?;
        match self.view.view(&full_name) {
            Some(view) => {
                self.take_room(view.name.len() as u64)?;
                Ok(PreparedOp::DropView { name: view.name.clone(), if_exists })
            }
            None if if_exists => Ok(PreparedOp::Nothing),
            None => {
                let short = name::printable(name::short_table_name(&full_name));
                Err(Error::not_found(format!("there is no view `{short}`")))
            }
        }
    }
}
