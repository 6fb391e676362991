//! Finds the source of an import: an Iceberg table by its directory, its metadata file or its name in the server's catalog,
//! or Parquet files.

use std::fs;
use std::path::{Path, PathBuf};

use http::Method;
use lake::Store;
use lake::foreign::newest_metadata;
use types::{Error, Kind, Result};
use vfs::Env;

use super::columns::SourceColumn;
use crate::client::{HttpClient, escaped};
use crate::config::Config;
use crate::warehouse;

/// The source that was found.
pub enum ImportSource {
    Iceberg(IcebergLocation),
    /// Parquet files in the order of their paths, and the directory that was searched for them.
    Parquet(PathBuf, Vec<PathBuf>),
}

/// The location of an Iceberg table.
#[derive(Clone, Debug)]
pub struct IcebergLocation {
    pub store: Store,
    /// The metadata file, in that store.
    pub metadata: PathBuf,
    /// The table's directory, address or name: for messages, and as the identity of a table without a UUID.
    pub title: String,
}

/// Largest number of files of one import.
const FILES_MAX: usize = 100_000;

/// Finds the source that the user named: a URI, a path, a glob, or a table of the server's Iceberg catalog.
pub async fn find(config: &Config, client: &mut HttpClient, source: &str) -> Result<ImportSource> {
    if source.contains("://") && !source.starts_with("file://") {
        return in_store(config, source).await.map(ImportSource::Iceberg);
    }
    let plain = source.strip_prefix("file://").unwrap_or(source);
    let path = Path::new(plain);
    if path.exists() {
        return on_disk(path);
    }
    if plain.contains(['*', '?']) {
        let files = glob(plain)?;
        return match files.is_empty() {
            false => Ok(ImportSource::Parquet(PathBuf::new(), files)),
            true => Err(Error::not_found(format!("no file matches {plain}"))
                .hint("quote it, so that the shell leaves it alone: 'trips/*.parquet'")),
        };
    }
    if !plain.contains('/') && types::name::full_table_name(plain).is_ok() {
        return in_catalog(config, client, plain).await.map(ImportSource::Iceberg);
    }
    Err(Error::not_found(format!("there is no {plain}")).hint(SOURCE_HINT))
}

const SOURCE_HINT: &str =
    "name a table's directory, its metadata file, a table of this server's Iceberg catalog, or Parquet files";

fn on_disk(path: &Path) -> Result<ImportSource> {
    let title = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let store = Store::local(&Env::real());
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if path.is_file() {
        return Ok(match is_metadata(name) {
            true => ImportSource::Iceberg(IcebergLocation {
                store,
                metadata: title.clone(),
                title: title.display().to_string(),
            }),
            false => ImportSource::Parquet(PathBuf::new(), vec![path.to_owned()]),
        });
    }
    if has_metadata(&path.join("metadata"))? {
        let metadata = newest_metadata(&store, &title)?;
        return Ok(ImportSource::Iceberg(IcebergLocation {
            store,
            metadata,
            title: title.display().to_string(),
        }));
    }
    for (mark, what) in [("_delta_log", "Delta"), (".hoodie", "Hudi")] {
        if path.join(mark).exists() {
            return Err(Error::invalid(format!("{} is a {what} table", path.display())).hint(
                "some of its Parquet files hold rows that are gone: export it as Parquet or Iceberg with a program that reads it",
            ));
        }
    }
    let mut files = Vec::new();
    collect(path, &mut files)?;
    if files.is_empty() {
        return Err(Error::not_found(format!(
            "{} holds no Parquet file and no Iceberg table",
            path.display()
        ))
        .hint(SOURCE_HINT));
    }
    Ok(ImportSource::Parquet(path.to_owned(), files))
}

/// Returns true if a directory called `metadata` is that of an Iceberg table, and does not hold other files.
fn has_metadata(dir: &Path) -> Result<bool> {
    if !dir.is_dir() {
        return Ok(false);
    }
    let is_of_a_table = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        // A directory with snapshots but no metadata file belonged to a table too: rows of its data files may be deleted, so the
        // files must not be imported as plain Parquet.
        is_metadata(&name) || (name.starts_with("snap-") && name.ends_with(".avro"))
    };
    Ok(sorted(dir)?.iter().any(is_of_a_table))
}

fn is_metadata(name: &str) -> bool {
    name.ends_with(".metadata.json") || name.ends_with(".metadata.json.gz")
}

/// Collects the Parquet files below a directory, in the order of their paths. Names that begin with `_` or `.` are skipped,
/// because by convention they hold no data.
fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in sorted(dir)? {
        let name = entry.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.starts_with(['_', '.']) {
            continue;
        }
        if entry.is_dir() {
            collect(&entry, files)?;
        } else if name.ends_with(".parquet") || name.ends_with(".parq") {
            push(files, entry)?;
        }
    }
    Ok(())
}

fn push(files: &mut Vec<PathBuf>, path: PathBuf) -> Result<()> {
    if files.len() == FILES_MAX {
        return Err(Error::new(Kind::TooLarge, format!("more than {FILES_MAX} files"))
            .hint("import them in several parts, each by a glob of its own"));
    }
    files.push(path);
    Ok(())
}

fn sorted(dir: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error| Error::io(format!("listing {}", dir.display()), error);
    let mut entries = fs::read_dir(dir)
        .map_err(failed)?
        .map(|entry| entry.map(|entry| entry.path()).map_err(failed))
        .collect::<Result<Vec<_>>>()?;
    entries.sort();
    Ok(entries)
}

/// Returns the files that match a pattern: `*` and `?` within a name, `**` for any directories.
fn glob(pattern: &str) -> Result<Vec<PathBuf>> {
    fn walk(at: &Path, parts: &[&str], files: &mut Vec<PathBuf>) -> Result<()> {
        let Some((part, rest)) = parts.split_first() else {
            return if at.is_file() { push(files, at.to_owned()) } else { Ok(()) };
        };
        if *part == "**" {
            walk(at, rest, files)?;
            for entry in sorted(if at.as_os_str().is_empty() { Path::new(".") } else { at })? {
                // Symbolic links may form a cycle.
                if entry.is_dir() && !entry.is_symlink() {
                    walk(&entry, parts, files)?;
                }
            }
            return Ok(());
        }
        if !part.contains(['*', '?']) {
            let next = at.join(part);
            return if next.exists() { walk(&next, rest, files) } else { Ok(()) };
        }
        let dir = if at.as_os_str().is_empty() { Path::new(".") } else { at };
        if !dir.is_dir() {
            return Ok(());
        }
        for entry in sorted(dir)? {
            let name = entry.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let is_hidden = name.starts_with('.') && !part.starts_with('.');
            if !is_hidden && matches_pattern(name.as_bytes(), part.as_bytes()) {
                walk(&entry, rest, files)?;
            }
        }
        Ok(())
    }
    let (root, rest) = match pattern.strip_prefix('/') {
        Some(rest) => (Path::new("/"), rest),
        None => (Path::new(""), pattern),
    };
    let parts: Vec<&str> = rest.split('/').filter(|part| !part.is_empty()).collect();
    let mut files = Vec::new();
    walk(root, &parts, &mut files)?;
    files.sort();
    files.dedup();
    Ok(files)
}

/// Returns true if a name matches a pattern. Takes time proportional to the product of their lengths at worst.
fn matches_pattern(name: &[u8], pattern: &[u8]) -> bool {
    let (mut n, mut p) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(b'?') => (n, p) = (n + 1, p + 1),
            Some(byte) if *byte == name[n] => (n, p) = (n + 1, p + 1),
            _ => match &mut star {
                None => return false,
                Some((at, taken)) => {
                    *taken += 1;
                    (n, p) = (*taken, *at + 1);
                }
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// Fails with `schema` if a directory on the path is called like `country=DE` and the file has no such column. The value is
/// only in the path and must not be lost silently.
pub fn check_partitions(root: &Path, file: &Path, columns: &[SourceColumn]) -> Result<()> {
    let below = file.strip_prefix(root).unwrap_or(file);
    let parents = below.parent().into_iter().flat_map(Path::components);
    for part in parents.filter_map(|part| part.as_os_str().to_str()) {
        let Some((column, _)) = part.split_once('=') else { continue };
        if columns.iter().all(|given| given.name() != column) {
            return Err(Error::new(
                Kind::Schema,
                format!("`{part}` in the path of {} is a value of a column that its file does not have", file.display()),
            )
            .hint("write the column into the files, or make an Iceberg table of them (Spark: `CALL … add_files`)"));
        }
    }
    Ok(())
}

/// Finds a table in an object store by its directory or its metadata file.
async fn in_store(config: &Config, uri: &str) -> Result<IcebergLocation> {
    let (config, uri) = (config.clone(), uri.to_owned());
    // The store blocks on a runtime of its own, which is not allowed on a thread of this runtime.
    let found = tokio::task::spawn_blocking(move || find_in_store(&config, &uri)).await;
    found.map_err(|error| Error::internal("looking into the object store failed").caused_by(error))?
}

fn find_in_store(config: &Config, uri: &str) -> Result<IcebergLocation> {
    if !uri.starts_with("s3://") {
        return Err(Error::invalid(format!("{uri} is not a place to read from")).hint(SOURCE_HINT));
    }
    let uri = uri.trim_end_matches('/');
    let (table, metadata) = match uri.rsplit_once("/metadata/") {
        Some((table, file)) if file.contains(".metadata.json") => (table, Some(format!("metadata/{file}"))),
        _ => (uri, None),
    };
    let store = warehouse::open_store(config, table)?;
    let metadata = match metadata {
        Some(metadata) => PathBuf::from(metadata),
        None => newest_metadata(&store, Path::new(""))?,
    };
    Ok(IcebergLocation { store, metadata, title: table.to_owned() })
}

/// Finds a table of this server's Iceberg catalog.
async fn in_catalog(config: &Config, client: &mut HttpClient, table: &str) -> Result<IcebergLocation> {
    let (namespace, name) = table.split_once('.').unwrap_or((types::name::DEFAULT_NAMESPACE, table));
    let path = format!("/iceberg/v1/namespaces/{}/tables/{}", escaped(namespace), escaped(name));
    let loaded = client.json(Method::GET, &path, None).await.map_err(|error| match error.kind() {
        Kind::NotFound => {
            Error::not_found(format!("there is no file {table}, and no such table in the Iceberg catalog")).hint(
                "the catalog is asked where `polynya serve` runs; else name the table's directory, or Parquet files",
            )
        }
        _ => error,
    })?;
    let location = loaded["metadata-location"].as_str().unwrap_or_default();
    if location.contains("://") && !location.starts_with("file://") {
        return in_store(config, location).await;
    }
    let plain =
        location.strip_prefix("file://").or_else(|| location.strip_prefix("file:")).unwrap_or(location);
    let metadata = PathBuf::from(plain);
    if !metadata.is_file() {
        return Err(Error::not_found(format!(
            "the catalog says that `{table}` is in {plain}, which is not here"
        ))
        .hint("import it on the machine of the server"));
    }
    Ok(IcebergLocation { store: Store::local(&Env::real()), metadata, title: table.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_matched_as_a_shell_does() {
        for (name, pattern, fits) in [
            ("a.parquet", "*.parquet", true),
            ("a.parquet", "?.par*", true),
            ("ab.parquet", "?.par*", false),
            ("part-00-x.parquet", "part-*-*.parquet", true),
            ("aaaaaaaaab", "*a*a*a*c", false),
            ("", "*", true),
        ] {
            assert_eq!(matches_pattern(name.as_bytes(), pattern.as_bytes()), fits, "{name} {pattern}");
        }
    }

    #[test]
    fn files_are_found_in_their_order_and_what_is_no_data_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        for name in
            ["b/2.parquet", "b/_SUCCESS", "a/1.parquet", "a/.x.parquet", "_old/3.parquet", "a/readme.txt"]
        {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        let names = |files: Vec<PathBuf>| -> Vec<String> {
            let name = |path: &PathBuf| path.strip_prefix(dir.path()).unwrap().display().to_string();
            files.iter().map(name).collect()
        };
        let mut files = Vec::new();
        collect(dir.path(), &mut files).unwrap();
        assert_eq!(names(files), ["a/1.parquet", "b/2.parquet"]);
        let found = |pattern: &str| names(glob(&format!("{}/{pattern}", dir.path().display())).unwrap());
        assert_eq!(found("*/*.parquet"), ["_old/3.parquet", "a/1.parquet", "b/2.parquet"]);
        assert_eq!(found("**/[12].parquet"), [] as [&str; 0]);
        assert_eq!(found("**/?.parquet"), ["_old/3.parquet", "a/1.parquet", "b/2.parquet"]);
        assert_eq!(found("a/1.parq*"), ["a/1.parquet"]);
    }

    /// Parquet files beside any directory called `metadata` were taken for an Iceberg table, which was then not found.
    #[test]
    fn a_directory_of_the_name_makes_no_iceberg_table() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("metadata")).unwrap();
        fs::write(dir.path().join("metadata/readme.txt"), "x").unwrap();
        fs::write(dir.path().join("1.parquet"), "x").unwrap();
        let Ok(ImportSource::Parquet(_, files)) = on_disk(dir.path()) else { panic!("Parquet files") };
        assert_eq!(files, [dir.path().join("1.parquet")]);
        // The remains of a table: it is unknown which rows of its data files are deleted.
        fs::write(dir.path().join("metadata/snap-1.avro"), "x").unwrap();
        assert_eq!(on_disk(dir.path()).err().map(|error| error.kind()), Some(Kind::NotFound));
        fs::write(dir.path().join("metadata/v1.metadata.json"), "{}").unwrap();
        assert!(matches!(on_disk(dir.path()), Ok(ImportSource::Iceberg(_))));
    }

    #[test]
    fn a_value_that_only_a_directory_says_is_not_lost_in_silence() {
        let root = Path::new("data");
        let file = Path::new("data/country=DE/1.parquet");
        let error = check_partitions(root, file, &[]).unwrap_err().to_string();
        assert!(error.contains("`country=DE`"), "{error}");
        let field = arrow::datatypes::Field::new("country", arrow::datatypes::DataType::Utf8, true);
        let given = SourceColumn { field: field.into(), data_type: None };
        check_partitions(root, file, &[given]).unwrap();
        check_partitions(Path::new("data/country=DE"), file, &[]).unwrap();
    }
}
