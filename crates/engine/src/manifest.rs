//! The manifest: the sum of the log's edits as one file, so that opening needs only the last part of the log.
//!
//! `manifest-<lsn in hex>` is the state of every table at that lsn, except for the rows of its head, which are in the log
//! from `replay_from` on. It is written under a temporary name, synced and renamed, and the directory is synced, before
//! anything that it makes superfluous is removed. Its bytes are decoded once before they are written: a manifest that cannot
//! be read back must not replace one that can. No predecessor is kept, since it would be of no use: the log and the segments
//! that only it needs go as soon as the newer one is durable. The newest one counts. `docs/format.md` draws the bytes.
//!
//! `manifest.copy-<lsn in hex>` has the same bytes, because nothing of the database could be read without them. It is
//! written before the manifest that it copies, so it is never older, and read only if that one is damaged or gone.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use commitlog::edit::ApiKey;
use table::materializer::Checkpoint;
use types::codec::{Decoder, Encoder};
use types::{Error, Kind, Lsn, Micros, Result, RowId, SegmentId, TableId, ViewDef};
use vfs::{Access, Env};

use crate::commit_times::CommitTimes;
use crate::database_root::{DatabaseRoot, Meta};

const MAGIC: &[u8; 8] = b"polynyaM";
/// The newest format, in which views name the tables that they read. A database without such views is written in an older
/// format, so that older programs read it.
const VERSION: u32 = 5;
/// The format with unique indexes, in which views do not name their tables.
const WITHOUT_READS: u32 = 4;
const WITHOUT_UNIQUE: u32 = 3;
const WITHOUT_TIMES: u32 = 2;
const WITHOUT_VIEWS: u32 = 1;
const PREFIX: &str = "manifest-";
const COPY_PREFIX: &str = "manifest.copy-";
const TEMPORARY: &str = ".tmp";
/// Temporary name of a manifest in earlier builds.
const OLD_TEMPORARY: &str = "manifest.tmp";

/// The state of a database at one lsn, except for the rows that are still in the log.
#[derive(Clone, Debug, Default)]
pub struct Manifest {
    /// The last commit it contains.
    pub lsn: Lsn,
    /// `_time` of that commit.
    pub time: Micros,
    /// The lsn from which the log is needed: it may hold head rows of commits at or below `lsn`.
    pub replay_from: Lsn,
    pub next_table: TableId,
    /// The next segment id: neither it nor a higher one was ever used.
    pub next_segment: SegmentId,
    pub keys: Vec<ApiKey>,
    /// Checkpoints: materializer, table, row, lsn, and the materializer's own state.
    pub checkpoints: Vec<(String, TableId, RowId, Lsn, Vec<u8>)>,
    pub tables: Vec<table::State>,
    pub views: Vec<ViewDef>,
    /// Times of the commits.
    pub(crate) times: CommitTimes,
}

impl Manifest {
    /// The lsn from which the log is needed besides a manifest of this root: that of the oldest row in no segment.
    pub(crate) fn replay_from(root: &DatabaseRoot) -> Lsn {
        let heads = root.tables().filter_map(|table| table.head_first_lsn());
        heads.fold(root.lsn.next(), Lsn::min)
    }

    pub(crate) fn of(root: &DatabaseRoot, next_segment: SegmentId) -> Manifest {
        let checkpoint = |((name, table), c): (&(String, TableId), &Checkpoint)| {
            (name.clone(), *table, c.row, c.lsn, c.state.clone())
        };
        Manifest {
            lsn: root.lsn,
            time: root.time,
            replay_from: Manifest::replay_from(root),
            next_table: root.meta.next_table,
            next_segment,
            keys: root.meta.keys.clone(),
            checkpoints: root.meta.checkpoints.iter().map(checkpoint).collect(),
            tables: root.tables().map(|t| t.state()).collect(),
            views: root.views().map(|view| ViewDef::clone(view)).collect(),
            times: root.times.clone(),
        }
    }

    pub(crate) fn meta(&self) -> Meta {
        let checkpoint = |(name, table, row, lsn, state): &(String, TableId, RowId, Lsn, Vec<u8>)| {
            ((name.clone(), *table), Checkpoint { row: *row, lsn: *lsn, state: state.clone() })
        };
        Meta {
            keys: self.keys.clone(),
            next_table: self.next_table,
            checkpoints: self.checkpoints.iter().map(checkpoint).collect(),
            views: self.views.iter().map(|v| (v.name.clone(), Arc::new(v.clone()))).collect(),
        }
    }

    /// The oldest format that can hold all of it.
    fn version(&self) -> u32 {
        if self.views.iter().any(|view| !view.reads.is_empty()) {
            VERSION
        } else if self.tables.iter().any(|state| state.def.has_unique()) {
            WITHOUT_READS
        } else {
            WITHOUT_UNIQUE
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut e = Encoder::new();
        e.bytes.extend_from_slice(MAGIC);
        let version = self.version();
        e.u32(version);
        e.u64(self.lsn.0);
        e.i64(self.time);
        e.u64(self.replay_from.0);
        e.u32(self.next_table.0);
        e.u64(self.next_segment.0);
        e.list(&self.keys, |e, key| key.encode(e));
        e.list(&self.checkpoints, |e, (name, table, row, lsn, state)| {
            e.str(name);
            e.u32(table.0);
            e.u64(row.0);
            e.u64(lsn.0);
            e.blob(state);
        });
        e.list(&self.tables, |e, state| state.encode(e));
        e.list(&self.views, |e, view| {
            view.encode(e);
            if version > WITHOUT_READS {
                view.encode_reads(e);
            }
        });
        self.times.encode(&mut e);
        let crc = crc32c::crc32c(&e.bytes);
        e.u32(crc);
        e.bytes
    }

    /// Decodes a manifest. Fails with [`Kind::Damaged`] for any other bytes, however few.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Manifest> {
        if bytes.len() < MAGIC.len() + 8 {
            return Err(Error::damaged("the manifest is cut short"));
        }
        let mut d = Decoder::new(bytes);
        if d.take(MAGIC.len())? != MAGIC {
            return Err(Error::damaged("this is not a manifest: it does not begin like one"));
        }
        let version = d.u32()?;
        if version > VERSION {
            return Err(Error::new(
                Kind::Newer,
                format!("the manifest has format {version}, this program knows {VERSION}"),
            )
            .hint("open this directory with the newer Polynya that wrote it"));
        }
        let (body, crc) = bytes.split_at(bytes.len() - 4);
        if crc32c::crc32c(body).to_le_bytes() != crc {
            return Err(Error::damaged("the manifest's checksum does not fit its bytes"));
        }
        let mut d = Decoder::new(&body[d.position()..]);
        let (lsn, time) = (Lsn(d.u64()?), d.i64()?);
        let manifest = Manifest {
            lsn,
            time,
            replay_from: Lsn(d.u64()?),
            next_table: TableId(d.u32()?),
            next_segment: SegmentId(d.u64()?),
            keys: d.list(ApiKey::decode)?,
            checkpoints: d.list(|d| {
                let name = d.str()?.to_owned();
                Ok((name, TableId(d.u32()?), RowId(d.u64()?), Lsn(d.u64()?), d.blob()?.to_vec()))
            })?,
            tables: d.list(table::State::decode)?,
            views: if version > WITHOUT_READS {
                d.list(ViewDef::decode_with_reads)?
            } else if version > WITHOUT_VIEWS {
                d.list(ViewDef::decode)?
            } else {
                Vec::new()
            },
            times: if version > WITHOUT_TIMES {
                CommitTimes::decode(&mut d)?
            } else {
                CommitTimes::from(time, lsn)
            },
        };
        d.finish()?;
        Ok(manifest)
    }
}

/// Reads the newest manifest of a data directory, or its copy. Returns `None` if there is none yet. [`Kind::Damaged`] names
/// the file.
pub fn read(env: &Env, dir: &Path) -> Result<Option<Manifest>> {
    Ok(find(env, dir)?.map(|(manifest, _)| manifest))
}

/// Returns the newest manifest, and the damage of its file if the copy had to be read.
fn find(env: &Env, dir: &Path) -> Result<Option<(Manifest, Option<Error>)>> {
    let newest = list(env, dir, PREFIX)?.pop();
    let copy = list(env, dir, COPY_PREFIX)?.pop();
    let (at, error) = match &newest {
        Some((at, name)) => match read_file(env, &dir.join(name), *at) {
            Ok(manifest) => return Ok(Some((manifest, None))),
            // The copy is tried after any error. It may be a bad sector, or a damaged byte in the version, which looks like
            // a newer format. A program that is really newer leaves a copy that is newer, too, or one from before it.
            Err(error) => (*at, Some(error)),
        },
        None => (Lsn(0), None),
    };
    let copied = match &copy {
        Some((lsn, name)) if *lsn >= at => Some(read_file(env, &dir.join(name), *lsn)),
        _ => None,
    };
    match (copied, error) {
        (None, None) => Ok(None),
        (None | Some(Err(_)), Some(error)) => Err(error),
        (Some(Err(error)), None) => Err(error),
        (Some(Ok(manifest)), error) => {
            let gone = || Error::damaged(format!("the manifest of lsn {} is gone", manifest.lsn));
            let error = error.unwrap_or_else(gone);
            Ok(Some((manifest, Some(error))))
        }
    }
}

/// Returns true if a directory has a manifest or its copy, even a damaged one.
pub fn exists(env: &Env, dir: &Path) -> bool {
    [PREFIX, COPY_PREFIX]
        .into_iter()
        .any(|prefix| list(env, dir, prefix).is_ok_and(|found| !found.is_empty()))
}

/// Reads the manifest of `lsn` from a file. A manifest of another lsn is damage: somebody put an older copy in its place.
fn read_file(env: &Env, path: &Path, lsn: Lsn) -> Result<Manifest> {
    let read = || -> std::io::Result<Vec<u8>> {
        let file = env.disk.open(path, Access::Read)?;
        let mut bytes = vec![0; file.len()? as usize];
        file.read_at(&mut bytes, 0)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|e| Error::io(format!("reading {}", path.display()), e))?;
    let manifest = Manifest::decode(&bytes).map_err(|e| e.with("file", path.display()))?;
    if manifest.lsn != lsn {
        return Err(Error::damaged(format!("the file holds the manifest of lsn {}", manifest.lsn))
            .with("file", path.display()));
    }
    Ok(manifest)
}

/// Reads the newest manifest like [`read`]; if it or its copy is damaged, both are rewritten.
pub(crate) fn recover(env: &Env, dir: &Path) -> Result<Option<Manifest>> {
    let Some((manifest, damage)) = find(env, dir)? else { return Ok(None) };
    if damage.is_some() || check(env, dir)?.is_some() {
        // The database goes on with the copy if the disk is too full for that.
        drop(write(env, dir, &manifest));
    }
    Ok(Some(manifest))
}

/// Returns the damage of the manifest or its copy while the other one can be read.
pub fn check(env: &Env, dir: &Path) -> Result<Option<Error>> {
    let Some((manifest, damage)) = find(env, dir)? else { return Ok(None) };
    if damage.is_some() {
        return Ok(damage);
    }
    let copies = list(env, dir, COPY_PREFIX)?;
    let Some((lsn, name)) = copies.into_iter().rfind(|(lsn, _)| *lsn == manifest.lsn) else {
        return Ok(None);
    };
    Ok(read_file(env, &dir.join(name), lsn).err())
}

/// Makes `manifest` the newest one, durably, and removes its predecessors. The caller makes sure that only one is written at
/// a time.
pub(crate) fn write(env: &Env, dir: &Path, manifest: &Manifest) -> Result<()> {
    let bytes = manifest.encode();
    check_read_back(&bytes)?;
    let [copy, path] =
        [COPY_PREFIX, PREFIX].map(|prefix| dir.join(format!("{prefix}{:016x}", manifest.lsn.0)));
    let failed = |path: &Path, e| Error::io(format!("writing {}", path.display()), e);
    let had_copy = env.disk.exists(&copy).map_err(|e| failed(&copy, e))?;
    write_file(env, &copy, &bytes).map_err(|e| failed(&copy, e))?;
    if let Err(error) = write_file(env, &path, &bytes) {
        // The predecessor and its copy are still there; this copy takes room that the next attempt needs.
        if !had_copy {
            let _ = env.disk.remove(&copy);
        }
        return Err(failed(&path, error));
    }
    env.disk.sync_dir(dir).map_err(|e| Error::io(format!("syncing {}", dir.display()), e))?;
    for prefix in [COPY_PREFIX, PREFIX] {
        for (_, name) in list(env, dir, prefix)?.into_iter().filter(|(lsn, _)| *lsn < manifest.lsn) {
            let old: PathBuf = dir.join(&name);
            env.disk.remove(&old).map_err(|e| Error::io(format!("removing {}", old.display()), e))?;
        }
    }
    Ok(())
}

/// Writes a file with these bytes, durable except for its name.
fn write_file(env: &Env, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(TEMPORARY);
    let temporary = Path::new(&temporary);
    if env.disk.exists(temporary)? {
        env.disk.remove(temporary)?;
    }
    let file = env.disk.create(temporary)?;
    let written = file.write_at(&[IoSlice::new(bytes)], 0).and_then(|()| file.sync());
    if let Err(error) = written.and_then(|()| env.disk.rename(temporary, path)) {
        let _ = env.disk.remove(temporary);
        return Err(error);
    }
    Ok(())
}

/// Removes the temporary files of interrupted writes. No write may be running.
pub(crate) fn remove_temporaries(env: &Env, dir: &Path) -> Result<()> {
    let entries = env.disk.list(dir).map_err(|e| Error::io(format!("listing {}", dir.display()), e))?;
    let ours = |name: &str| {
        let rest = name.strip_prefix(PREFIX).or_else(|| name.strip_prefix(COPY_PREFIX));
        let lsn = rest.and_then(|rest| rest.strip_suffix(TEMPORARY));
        name == OLD_TEMPORARY
            || lsn.is_some_and(|lsn| lsn.len() == 16 && u64::from_str_radix(lsn, 16).is_ok())
    };
    for entry in entries.into_iter().filter(|entry| !entry.is_dir && ours(&entry.name)) {
        let path = dir.join(&entry.name);
        env.disk.remove(&path).map_err(|e| Error::io(format!("removing {}", path.display()), e))?;
    }
    Ok(())
}

/// Refuses a manifest that could not be opened again. That is a bug: everything in a root was checked when it was added.
fn check_read_back(bytes: &[u8]) -> Result<()> {
    Manifest::decode(bytes).map(drop).map_err(|error| {
        Error::internal(format!("a manifest that cannot be read back is not written: {}", error.message()))
    })
}

/// The manifests in a directory, or their copies, by lsn, oldest first.
fn list(env: &Env, dir: &Path, prefix: &str) -> Result<Vec<(Lsn, String)>> {
    let entries = env.disk.list(dir).map_err(|e| Error::io(format!("listing {}", dir.display()), e))?;
    let mut manifests: Vec<(Lsn, String)> = entries
        .into_iter()
        .filter_map(|entry| {
            let lsn = u64::from_str_radix(entry.name.strip_prefix(prefix)?, 16).ok()?;
            Some((Lsn(lsn), entry.name))
        })
        .collect();
    manifests.sort();
    Ok(manifests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_that_cannot_be_read_back_is_not_written_and_its_predecessor_stays() {
        let machine = sim::SimEnv::new(1);
        let (env, dir) = (machine.env(), Path::new("db"));
        env.disk.create_dir_all(dir).unwrap();
        write(&env, dir, &Manifest { lsn: Lsn(3), ..Manifest::default() }).unwrap();
        let mut def = types::TableDef::new(TableId(1), "main.t");
        def.add_column("x", &types::DataType::Int64, true, None).unwrap();
        let mut state = table::Tip::new(def).snapshot(Lsn(4)).state();
        state.def.primary_key = vec![types::ColumnId(99)];
        let bad = Manifest { lsn: Lsn(4), tables: vec![state], ..Manifest::default() };
        assert_eq!(write(&env, dir, &bad).unwrap_err().kind(), Kind::Internal);
        assert_eq!(read(&env, dir).unwrap().unwrap().lsn, Lsn(3));
    }

    /// A damaged byte in the one file that lists the contents made everything unreadable.
    #[test]
    fn a_damaged_manifest_is_replaced_by_its_copy_and_one_of_before_is_not_taken() {
        let machine = sim::SimEnv::new(1);
        let (env, dir) = (machine.env(), Path::new("db"));
        env.disk.create_dir_all(dir).unwrap();
        let file = |prefix: &str, lsn: u64| dir.join(format!("{prefix}{lsn:016x}"));
        let put = |lsn: u64| write(&env, dir, &Manifest { lsn: Lsn(lsn), ..Manifest::default() }).unwrap();
        let found = || read(&env, dir).map(|manifest| manifest.unwrap().lsn.0);
        put(3);
        put(7);
        assert_eq!(env.disk.list(dir).unwrap().len(), 2, "those of before are gone");
        let bytes = machine.disk.contents(&file(PREFIX, 7)).unwrap();
        assert_eq!(machine.disk.contents(&file(COPY_PREFIX, 7)).unwrap(), bytes);
        assert!(check(&env, dir).unwrap().is_none());
        for offset in 0..bytes.len() as u64 {
            for prefix in [PREFIX, COPY_PREFIX] {
                machine.disk.flip_bit(&file(prefix, 7), offset);
                let name = file(prefix, 7).display().to_string();
                let told = check(&env, dir).unwrap().unwrap_or_else(|| panic!("{name} at {offset}"));
                assert!(told.to_string().contains(&name), "{told}");
                assert_eq!(recover(&env, dir).unwrap().unwrap().lsn, Lsn(7));
                assert!(check(&env, dir).unwrap().is_none(), "both are made whole");
            }
        }
        env.disk.remove(&file(PREFIX, 7)).unwrap();
        assert!(check(&env, dir).unwrap().unwrap().to_string().contains("gone"));
        assert_eq!(recover(&env, dir).unwrap().unwrap().lsn, Lsn(7));
        assert!(check(&env, dir).unwrap().is_none());

        // Both files are damaged.
        [PREFIX, COPY_PREFIX].iter().for_each(|prefix| machine.disk.flip_bit(&file(prefix, 7), 30));
        assert_eq!(found().unwrap_err().kind(), Kind::Damaged);
        put(7);
        // A program that does not know copies wrote the next manifest.
        env.disk.rename(&file(PREFIX, 7), &file(PREFIX, 9)).unwrap();
        machine.disk.flip_bit(&file(PREFIX, 9), 30);
        assert_eq!(found().unwrap_err().kind(), Kind::Damaged, "the copy is of another");
    }
}
