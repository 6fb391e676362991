//! COPY between tables and files, with the file rights of this process. The formats are defined in [`query::files`].
//!
//! COPY TO writes a temporary file, makes it durable and then renames it.

use query::Limits;
use query::files::{self, Copy, CopyDirection, CopyEndpoint, Draft, Writer};
use types::{Error, Result};

use crate::{Answer, Database};

impl Database {
    pub(crate) async fn copy(&self, copy: &Copy) -> Result<Answer> {
        let CopyEndpoint::File(path) = &copy.endpoint else { return Err(files::no_stream()) };
        let count = match &copy.direction {
            CopyDirection::To { query } => self.copy_to(copy, path, query).await?,
            CopyDirection::From { table, columns } => self.copy_from(copy, path, table, columns)?,
        };
        Ok(Answer { batches: Vec::new(), count })
    }

    async fn copy_to(&self, copy: &Copy, path: &str, text: &str) -> Result<u64> {
        let mut draft = Draft::new(path, copy.overwrite)?;
        let mut rows = self.sql.get()?.copy_out(&self.principal, None, text, Limits::default()).await?;
        let named = |error: Error| error.with("file", path);
        let mut writer = Writer::new(copy, rows.schema()).map_err(named)?;
        let (mut out, mut count) = (Vec::new(), 0);
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            count += batch.num_rows() as u64;
            writer.batch(&batch, &mut out).map_err(named)?;
            if out.len() >= BUFFER_BYTES {
                draft.write(&out)?;
                out.clear();
            }
        }
        writer.end(&mut out).map_err(named)?;
        draft.write(&out)?;
        draft.finish()?;
        Ok(count)
    }

    fn copy_from(&self, copy: &Copy, path: &str, table: &str, columns: &[(String, bool)]) -> Result<u64> {
        let snapshot = self.engine.view(&self.principal)?.table(table)?;
        let input = files::open(path)?;
        let def = snapshot.def().clone();
        drop(snapshot);
        let loaded = files::read(copy, &def, columns, input).and_then(|rows| {
            files::load(rows, |batch| files::commit(&self.engine, &self.principal, &def, batch))
        });
        loaded.map(|loaded| loaded.count).map_err(|error| error.with("file", path))
    }
}

/// The smallest size of one write.
const BUFFER_BYTES: usize = 256 << 10;
