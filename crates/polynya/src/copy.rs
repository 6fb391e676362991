//! COPY between tables and files. Only here, where whoever runs it owns the files as well: a server refuses it.
//!
//! What is written is streamed into a file of another name, made durable, and only then gets its own. What is read is
//! committed at once up to [`PIECE_BYTES`], beyond that in pieces of about as much.

mod formats;
#[cfg(feature = "parquet")]
mod parquet;

use std::io::{self, BufWriter, IoSlice, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use query::Limits;
use query::files::{Copy, What};
use types::{Error, Kind, Result, TableDef, name};
use vfs::{Access, Disk, Env};

use crate::{Answer, Database};

/// A larger file becomes several commits.
const PIECE_BYTES: usize = 64 << 20;
/// What is written or read at once.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;

impl Database {
    pub(crate) async fn copy(&self, copy: &Copy) -> Result<Answer> {
        let count = match &copy.what {
            What::To { query } => self.copy_to(copy, query).await?,
            What::From { table, columns } => self.copy_from(copy, table, columns)?,
        };
        Ok(Answer { batches: Vec::new(), count })
    }

    async fn copy_to(&self, copy: &Copy, text: &str) -> Result<u64> {
        let limits = Limits { rows_max: Some(u64::MAX), ..Limits::default() };
        let disk = Env::real().disk;
        let mut draft = Draft::new(disk, Path::new(&copy.path), copy.overwrite)?;
        let answer = self.sql.get()?.run(&self.principal, text, Vec::new(), limits).await?;
        let query::Answer::Rows(mut rows) = answer else {
            return Err(Error::invalid("COPY … TO takes a query that gives rows"));
        };
        let mut writer = formats::Writer::new(copy, rows.schema(), draft.writer())?;
        let mut count = 0;
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            count += batch.num_rows() as u64;
            writer.write(&batch)?;
        }
        let out = writer.end()?;
        out.into_inner().map_err(|e| failed(&copy.path, e.into_error()))?;
        draft.finish()?;
        Ok(count)
    }

    fn copy_from(&self, copy: &Copy, table: &str, columns: &[(String, bool)]) -> Result<u64> {
        let snapshot = self.engine.view(&self.principal)?.table(table)?;
        let def = snapshot.def();
        let columns = columns.iter().map(|column| position(def, column)).collect::<Result<Vec<_>>>()?;
        let file =
            Env::real().disk.open(Path::new(&copy.path), Access::Read).map_err(|e| failed(&copy.path, e))?;
        let len = file.len().map_err(|e| failed(&copy.path, e))?;
        let input = Input { file, at: 0, len };
        let (mut piece, mut bytes, mut count) = (Vec::new(), 0, 0);
        let told = |error: Error, count: u64| match count {
            0 => error,
            count => error.with("rows committed before", count).hint("those before are there; copy the rest"),
        };
        for batch in formats::read(copy, def, &columns, input)? {
            let batch = batch.map_err(|e| told(e, count))?;
            bytes += batch.get_array_memory_size();
            piece.push(batch);
            if bytes > PIECE_BYTES {
                count += self.insert_piece(&def.name, &mut piece).map_err(|e| told(e, count))?;
                bytes = 0;
            }
        }
        Ok(count + self.insert_piece(&def.name, &mut piece).map_err(|e| told(e, count))?)
    }

    fn insert_piece(&self, table: &str, piece: &mut Vec<RecordBatch>) -> Result<u64> {
        let batches = std::mem::take(piece);
        let Some(first) = batches.first() else { return Ok(0) };
        let whole = concat_batches(&first.schema(), &batches)
            .map_err(|e| Error::internal(format!("the rows of a file make no batch: {e}")))?;
        if whole.num_rows() == 0 {
            return Ok(0);
        }
        self.insert(table, whole).map(|committed| committed.count)
    }
}

/// The place of a column among those of a table.
fn position(def: &TableDef, (wanted, quoted): &(String, bool)) -> Result<usize> {
    let names = || def.schema.columns.iter().map(|column| column.name.as_str());
    let found = if *quoted { names().position(|n| n == wanted) } else { name::resolve(wanted, names()) };
    found.ok_or_else(|| {
        Error::invalid(format!("there is no column `{}`", name::printable(wanted))).with("table", &def.name)
    })
}

fn failed(path: &str, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => Error::not_found(format!("there is no file `{}`", name::printable(path))),
        _ => Error::io(format!("copying `{}`", name::printable(path)), error),
    }
}

/// A file that gets its name once it is whole.
struct Draft {
    disk: Arc<dyn Disk>,
    file: Arc<dyn vfs::File>,
    path: PathBuf,
    temporary: PathBuf,
    overwrite: bool,
    is_done: bool,
}

impl Draft {
    fn new(disk: Arc<dyn Disk>, path: &Path, overwrite: bool) -> Result<Draft> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let Some(own) = path.file_name() else {
            return Err(Error::invalid(format!(
                "`{}` names no file",
                name::printable(&path.to_string_lossy())
            )));
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let temporary =
            path.with_file_name(format!(".{}.{}-{number}.tmp", own.to_string_lossy(), std::process::id()));
        check_free(&*disk, path, overwrite)?;
        let file = disk.create(&temporary).map_err(|e| failed(&path.to_string_lossy(), e))?;
        Ok(Draft { disk, file, path: path.to_owned(), temporary, overwrite, is_done: false })
    }

    fn writer(&self) -> BufWriter<Output> {
        BufWriter::with_capacity(BUFFER_BYTES, Output { file: self.file.clone(), at: 0 })
    }

    fn finish(&mut self) -> Result<()> {
        let failed = |e| failed(&self.path.to_string_lossy(), e);
        self.file.sync().map_err(failed)?;
        // Looked for again: writing took its time.
        check_free(&*self.disk, &self.path, self.overwrite)?;
        self.disk.rename(&self.temporary, &self.path).map_err(failed)?;
        self.is_done = true;
        let parent = match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        self.disk.sync_dir(parent).map_err(failed)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_done {
            // A leftover is no answer, and its name says so.
            let _ = self.disk.remove(&self.temporary);
        }
    }
}

fn check_free(disk: &dyn Disk, path: &Path, overwrite: bool) -> Result<()> {
    let shown = path.to_string_lossy();
    if !overwrite && disk.exists(path).map_err(|e| failed(&shown, e))? {
        return Err(Error::new(
            Kind::Exists,
            format!("there is a file `{}` already", name::printable(&shown)),
        )
        .hint("choose another name, or write ALLOWOVERWRITE at the end"));
    }
    Ok(())
}

/// A file written from its beginning.
pub(crate) struct Output {
    file: Arc<dyn vfs::File>,
    at: u64,
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_at(&[IoSlice::new(bytes)], self.at)?;
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A file read from its beginning.
pub(crate) struct Input {
    file: Arc<dyn vfs::File>,
    at: u64,
    len: u64,
}

impl Read for Input {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.len - self.at).unwrap_or(usize::MAX);
        let count = left.min(bytes.len());
        self.file.read_at(&mut bytes[..count], self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}
