//! The source of an ingestion, a file or standard input: recognises its format and reads it from any position.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use types::{Error, Result, name};

use crate::access_log;

/// The format of a source. The first bytes tell it; the file's name decides if they fit several formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// One JSON object a line.
    Ndjson,
    /// One JSON array of objects, at most as large as one request.
    Json,
    Csv,
    Parquet,
    /// A web server's log in the common or combined format.
    AccessLog,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    Plain,
    Gzip,
    Zstd,
}

/// Bytes read at the beginning of a source to recognise its format and to infer the types of CSV.
pub const PREFIX_BYTES: usize = 1 << 20;
/// Lines checked to recognise an access log.
const LINES_LOOKED_AT: usize = 20;

/// An open source whose first bytes were read.
pub struct IngestSource {
    /// Path of the file; `None` for standard input and for pipes.
    pub path: Option<PathBuf>,
    /// Bytes of the file on disk, packed or not; `None` if unknown.
    pub len: Option<u64>,
    /// The first bytes, unpacked; at most [`PREFIX_BYTES`].
    pub prefix: Vec<u8>,
    /// Bytes of the file read so far, before unpacking, for the progress bar.
    pub read: Arc<AtomicU64>,
    packing: Packing,
    /// The stream after the prefix, for a source that can be read only once.
    rest: Option<Box<dyn Read + Send>>,
}

impl IngestSource {
    /// Opens a file, or standard input for `-`, and reads its first bytes. A pipe or a device is treated as standard input.
    /// Fails for a directory and for a missing file.
    pub fn open(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return IngestSource::from_stream(Box::new(io::stdin()), None);
        }
        let failed = |error: io::Error| {
            let what = format!("reading {}", path.display());
            match error.kind() {
                io::ErrorKind::NotFound => Error::not_found(format!("there is no file {}", path.display())),
                io::ErrorKind::PermissionDenied => {
                    Error::io(what, error).hint("check its permissions with `ls -l`")
                }
                _ => Error::io(what, error),
            }
        };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(Error::invalid(format!("{} is a directory", path.display()))
                .hint(format!("name its files: `polynya ingest {}/*`", path.display())));
        }
        if !metadata.is_file() {
            // A pipe or a device can be read only once, like standard input.
            return IngestSource::from_stream(Box::new(file), None);
        }
        let mut source = IngestSource::from_stream(Box::new(file), Some(path.to_owned()))?;
        source.len = Some(metadata.len());
        source.rest = None;
        source.read.store(0, Ordering::Relaxed);
        Ok(source)
    }

    fn from_stream(stream: Box<dyn Read + Send>, path: Option<PathBuf>) -> Result<Self> {
        let title = title(path.as_deref());
        let failed = |error| Error::io(format!("reading the first bytes of {title}"), error);
        let read = Arc::new(AtomicU64::new(0));
        let mut counted: Box<dyn Read + Send> =
            Box::new(CountingReader { inner: stream, read: read.clone() });
        let mut magic = Vec::new();
        counted.by_ref().take(4).read_to_end(&mut magic).map_err(failed)?;
        let packing = match magic.as_slice() {
            [0x1f, 0x8b, ..] => Packing::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd] => Packing::Zstd,
            _ => Packing::Plain,
        };
        let mut unpacked =
            unpack(Box::new(Cursor::new(magic).chain(counted)), packing, &title).map_err(failed)?;
        let mut prefix = Vec::new();
        unpacked.by_ref().take(PREFIX_BYTES as u64).read_to_end(&mut prefix).map_err(failed)?;
        Ok(IngestSource { path, len: None, prefix, read, packing, rest: Some(unpacked) })
    }

    /// Name of the source for messages.
    pub fn title(&self) -> String {
        title(self.path.as_deref())
    }

    /// Returns true for a file, which can be read again, so that an interrupted run can resume.
    pub fn is_file(&self) -> bool {
        self.path.is_some()
    }

    /// Returns true if the file is not packed. Then positions count bytes of the file itself, and its length tells whether
    /// it grew or shrank.
    pub fn is_plain(&self) -> bool {
        self.packing == Packing::Plain
    }

    /// Returns a reader of the unpacked bytes from `position` on. Standard input can be read only once, and from its
    /// beginning. Fails with `invalid` if a packed file is shorter than `position`.
    pub fn reader(&mut self, position: u64) -> Result<Box<dyn Read + Send>> {
        let title = self.title();
        let failed = |error| Error::io(format!("reading {title} from byte {position}"), error);
        let Some(path) = &self.path else {
            let rest = self.rest.take().ok_or_else(|| Error::internal("standard input was read already"))?;
            return Ok(Box::new(Cursor::new(self.prefix.clone()).chain(rest)));
        };
        let mut file = File::open(path).map_err(failed)?;
        if self.packing == Packing::Plain {
            file.seek(SeekFrom::Start(position)).map_err(failed)?;
            self.read.store(position, Ordering::Relaxed);
            return Ok(Box::new(CountingReader { inner: file, read: self.read.clone() }));
        }
        self.read.store(0, Ordering::Relaxed);
        let counted = CountingReader { inner: file, read: self.read.clone() };
        let mut unpacked = unpack(Box::new(counted), self.packing, &title).map_err(failed)?;
        let skipped = io::copy(&mut unpacked.by_ref().take(position), &mut io::sink()).map_err(failed)?;
        if skipped < position {
            return Err(Error::invalid(format!("{} is shorter than when its ingestion began", self.title()))
                .hint("start over with --again"));
        }
        Ok(unpacked)
    }

    /// Returns the format that the file's name suggests, if any. `access.log.2.gz` is an access log.
    fn format_of_name(&self) -> Option<Format> {
        let file_name = self.path.as_ref()?.file_name()?.to_string_lossy().to_lowercase();
        let counts = |part: &&str| !matches!(*part, "gz" | "zst") && part.parse::<u32>().is_err();
        match file_name.split('.').skip(1).filter(counts).last() {
            Some("csv" | "tsv") => Some(Format::Csv),
            Some("ndjson" | "jsonl") => Some(Format::Ndjson),
            Some("json") => Some(Format::Json),
            Some("parquet") => Some(Format::Parquet),
            Some("log") => Some(Format::AccessLog),
            _ => file_name.contains("access").then_some(Format::AccessLog),
        }
    }

    /// Recognises the format from the first bytes. If they fit several formats, the file's name decides. The error for an
    /// unknown format says why the content does not fit the format that the name suggests, and in which line.
    pub fn recognise(&self) -> Result<Format> {
        let unknown = |why: &str| {
            Error::invalid(format!("{} {why}", self.title()))
                .hint("name its format with --format ndjson, csv, parquet or access-log")
        };
        if self.prefix.starts_with(b"PAR1") {
            return match self.packing == Packing::Plain && self.is_file() {
                true => Ok(Format::Parquet),
                false => Err(Error::invalid(
                    "a Parquet file cannot be read from a pipe or packed: its index is at its end",
                )
                .hint("save it to a file first")),
            };
        }
        let named_format = self.format_of_name();
        let text = text_prefix(&self.prefix);
        if text.contains(&0) {
            return Err(unknown("holds binary data that is not Parquet"));
        }
        let text = String::from_utf8_lossy(text);
        let numbered = text.lines().zip(1_usize..).map(|(line, number)| (number, line.trim()));
        let lines: Vec<(usize, &str)> =
            numbered.filter(|(_, line)| !line.is_empty()).take(LINES_LOOKED_AT).collect();
        let Some(&(first_number, first)) = lines.first() else {
            return Err(
                Error::invalid(format!("{} is empty", self.title())).hint("there is nothing to read in it")
            );
        };
        let begins_an_array =
            || first[1..].trim_start().chars().next().is_none_or(|next| next == '{' || next == ']');
        match first.as_bytes()[0] {
            b'{' => return Ok(Format::Ndjson),
            b'[' if named_format == Some(Format::Json) || begins_an_array() => return Ok(Format::Json),
            _ => {}
        }
        let shown = |line: &str| format!("`{}`", name::printable(line));
        let strange = lines.iter().find(|(_, line)| !access_log::is_access_log(line));
        let logged = lines.iter().filter(|(_, line)| access_log::is_access_log(line)).count();
        if logged * 2 > lines.len() || (logged > 0 && named_format == Some(Format::AccessLog)) {
            return Ok(Format::AccessLog);
        }
        if named_format == Some(Format::Csv) || super::csv::delimiter(text.as_bytes()).is_some() {
            return Ok(Format::Csv);
        }
        Err(match (named_format, strange) {
            (Some(Format::Parquet), _) => unknown("is not a Parquet file, which would begin with `PAR1`"),
            (Some(Format::Ndjson | Format::Json), _) => {
                unknown(&format!("has no JSON object in line {first_number}: {}", shown(first)))
            }
            (Some(Format::AccessLog), _) => unknown(&format!(
                "has no line of an access log among its first {}; line {first_number} is {}",
                lines.len(),
                shown(first)
            )),
            (_, Some((number, line))) if logged > 0 => unknown(&format!(
                "has {logged} lines of an access log among its first {}, but line {number} is {}",
                lines.len(),
                shown(line)
            )),
            _ => match super::csv::first_uneven(text.as_bytes()) {
                Some(why) => unknown(&format!("looks like CSV, but {why}")),
                None => unknown(&format!("begins with {}, which no known format does", shown(first))),
            },
        })
    }

    /// Returns the default table for the file's rows: the file's name up to its first dot, in lower case, as SQL reads a
    /// name without quotes. Fails with `invalid` if no valid name remains.
    pub fn table_name(&self) -> Result<String> {
        let no_name = || {
            Error::invalid(format!("no table name follows from {}", self.title()))
                .hint("name one with --table NAME")
        };
        let file_name = self.path.as_ref().and_then(|path| path.file_name()).ok_or_else(no_name)?;
        let stem = file_name.to_string_lossy();
        let stem = stem.trim_start_matches('.').split('.').next().unwrap_or_default();
        let cleaned: String =
            stem.chars().map(|c| if c.is_alphanumeric() || c == '-' { c } else { '_' }).collect();
        let cleaned =
            cleaned.trim_matches(|c: char| !c.is_alphabetic() && !c.is_ascii_digit()).to_lowercase();
        // A table's name starts with a letter: `2024-01` becomes `t2024-01`.
        let named = match cleaned.starts_with(|c: char| c.is_alphabetic()) {
            true => cleaned,
            false if cleaned.is_empty() => return Err(no_name()),
            false => format!("t{cleaned}"),
        };
        name::full_table_name(&named).map(|_| named).map_err(|_| no_name())
    }
}

/// Strips the byte order mark at the beginning of a text, if there is one.
pub fn text_prefix(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

fn title(path: Option<&Path>) -> String {
    path.map_or_else(|| "standard input".into(), |path| path.display().to_string())
}

fn unpack(packed: Box<dyn Read + Send>, packing: Packing, title: &str) -> io::Result<Box<dyn Read + Send>> {
    let inner: Box<dyn Read + Send> = match packing {
        Packing::Plain => return Ok(packed),
        Packing::Gzip => {
            Box::new(flate2::read::MultiGzDecoder::new(io::BufReader::with_capacity(1 << 16, packed)))
        }
        Packing::Zstd => Box::new(zstd::Decoder::new(packed)?),
    };
    Ok(Box::new(UnpackingReader { inner, title: title.to_owned() }))
}

/// Adds the file's name to errors of unpacking, because the readers of the unpacked lines do not know the file.
struct UnpackingReader<R> {
    inner: R,
    title: String,
}

impl<R: Read> Read for UnpackingReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buf).map_err(|error| {
            let what = match error.kind() {
                io::ErrorKind::UnexpectedEof => "ends too early: a part of it is missing".to_owned(),
                _ => format!("cannot be unpacked: {error}"),
            };
            io::Error::new(error.kind(), format!("{} {what}", self.title))
        })
    }
}

/// Counts the bytes that are read through it.
struct CountingReader<R> {
    inner: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buf)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(name: &str, bytes: &[u8]) -> (tempfile::TempDir, IngestSource) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let source = IngestSource::open(&path).unwrap();
        (dir, source)
    }

    #[test]
    fn a_format_is_told_by_content_whatever_the_name() {
        let log = r#"1.2.3.4 - - [01/Jan/2026:00:00:00 +0000] "GET / HTTP/1.1" 200 5"#;
        for (bytes, format) in [
            ("{\"a\": 1}\n", Format::Ndjson),
            ("\u{feff}\n  {\"a\": 1}\n", Format::Ndjson),
            ("[{\"a\": 1}]", Format::Json),
            ("a,b\n1,2\n", Format::Csv),
            ("a;b\n\"x;y\";2\n", Format::Csv),
            (log, Format::AccessLog),
            (&format!("broken line\n{log}\n{log}\n"), Format::AccessLog),
        ] {
            assert_eq!(file("x", bytes.as_bytes()).1.recognise().unwrap(), format, "{bytes}");
        }
        for (bytes, why) in [("hello there", "no known format"), ("a\0b", "binary")] {
            let error = file("x", bytes.as_bytes()).1.recognise().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("--format"), "{error}");
        }
        assert!(
            file("x.csv", b"\n")
                .1
                .recognise()
                .unwrap_err()
                .to_string()
                .contains("is empty; there is nothing")
        );
    }

    /// A log with two good lines of four was refused as an unknown format, and the error quoted a good line. A CSV file with
    /// one bad row was refused likewise.
    #[test]
    fn the_name_decides_where_the_content_leaves_a_choice() {
        let log = r#"1.2.3.4 - - [01/Jan/2026:00:00:00 +0000] "GET / HTTP/1.1" 200 5"#;
        let half = format!("{log}\nbroken\n{log}\nnonsense\n");
        for (name, text, format) in [
            ("access.log", half.as_str(), Format::AccessLog),
            ("access.log.2.gz", &half, Format::AccessLog),
            ("site-access_2026", &half, Format::AccessLog),
            ("bad.csv", "a,b\n1,2\n3,4,5\n", Format::Csv),
            ("words.csv", "word\nhello\n", Format::Csv),
            ("words.tsv.gz", "word\nhello there\n", Format::Csv),
            ("x.log", "{\"a\": 1}\n", Format::Ndjson),
            ("x.json", "[\n{\"a\": 1}]", Format::Json),
        ] {
            assert_eq!(file(name, text.as_bytes()).1.recognise().unwrap(), format, "{name}");
        }
        for (name, text, said) in [
            ("stuff", half.as_str(), "2 lines of an access log among its first 4, but line 2 is `broken`"),
            ("stuff", "a,b\n1,2\n3\n", "looks like CSV, but line 3 has 1 field where 2 are expected"),
            ("stuff", "a,b\n1,2\n3,4,5\n", "looks like CSV, but line 3 has 3 fields where 2 are expected"),
            (
                "app.log",
                "[Sat Nov 21] started\n",
                "has no line of an access log among its first 1; line 1 is `[Sat",
            ),
            ("x.ndjson", "\nhello\n", "has no JSON object in line 2: `hello`"),
            ("x.parquet", "hello\n", "is not a Parquet file"),
        ] {
            let error = file(name, text.as_bytes()).1.recognise().unwrap_err().to_string();
            assert!(error.contains(said) && error.contains("--format"), "{name}: {error}");
        }
    }

    #[test]
    fn packed_files_are_read_from_any_position_of_their_content() {
        let text = "{\"a\": 1}\n".repeat(1000);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(text.as_bytes()).unwrap();
        for packed in
            [gzip.finish().unwrap(), zstd::encode_all(text.as_bytes(), 1).unwrap(), text.clone().into_bytes()]
        {
            let (_dir, mut source) = file("x", &packed);
            assert_eq!(source.recognise().unwrap(), Format::Ndjson);
            let mut rest = String::new();
            source.reader(900).unwrap().read_to_string(&mut rest).unwrap();
            assert_eq!(rest, text[900..]);
            assert_eq!(source.read.load(Ordering::Relaxed), packed.len() as u64);
        }
    }

    #[test]
    fn a_table_is_named_after_its_file() {
        for (file_name, table) in [
            ("access.log", "access"),
            ("access.log.1.gz", "access"),
            ("2024-01.csv", "t2024-01"),
            ("My Events (copy).ndjson", "my_events__copy"),
            (".hidden.csv", "hidden"),
        ] {
            assert_eq!(file(file_name, b"{}").1.table_name().unwrap(), table);
        }
        assert!(file("___", b"{}").1.table_name().is_err());
    }

    /// The error for one truncated file among many did not name the file.
    #[test]
    fn a_packed_file_that_was_cut_is_named() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        // Random numbers keep the text long when it is packed.
        let mut state = 1_u64;
        for line in 0..40_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            writeln!(gzip, "{{\"a\": {line}, \"b\": {state}}}").unwrap();
        }
        let whole = gzip.finish().unwrap();
        let (_dir, mut source) = file("cut.json.gz", &whole[..whole.len() - 100]);
        let mut all = Vec::new();
        let error = source.reader(0).unwrap().read_to_end(&mut all).unwrap_err().to_string();
        assert!(error.contains("cut.json.gz ends too early"), "{error}");

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("short.csv.gz");
        std::fs::write(&path, &whole[..30]).unwrap();
        let error = IngestSource::open(&path).err().unwrap().to_string();
        assert!(error.contains("short.csv.gz"), "{error}");
    }

    #[test]
    fn an_unreadable_source_is_refused_in_one_sentence() {
        let dir = tempfile::tempdir().unwrap();
        assert!(IngestSource::open(dir.path()).err().unwrap().to_string().contains("is a directory"));
        assert!(
            IngestSource::open(&dir.path().join("x"))
                .err()
                .unwrap()
                .to_string()
                .starts_with("there is no file")
        );
    }
}
