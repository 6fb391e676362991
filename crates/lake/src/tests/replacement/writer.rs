//! Simulates another program, such as Spark, that rewrites the files of a lake, correctly or not.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use iceberg::manifest::{self, Content, DataFile, Entry, ManifestFile, Status};
use iceberg::schema::Columns;
use iceberg::spec;
use table::materializer::Progress;
use types::Result;

use crate::data_file::{self, FilePartition};
use crate::live_rows::LiveRows;
use crate::state::LiveFile;
use crate::tests::support::Bench;
use crate::{Lake, Replacement, ReplacementOutcome, delete_file};

/// A commit that is being prepared: the files that the table is to have.
pub struct Writer<'b> {
    bench: &'b Bench,
    pub lake: Arc<Lake>,
    pub columns: Arc<Columns>,
    pub data: Vec<DataFile>,
    pub deletes: Vec<DataFile>,
    /// Manifests that are kept unchanged.
    pub manifests: Vec<ManifestFile>,
    pub id: i64,
    files: u32,
}

impl<'b> Writer<'b> {
    /// Begins with the lake's present files; nothing is replaced yet.
    pub fn new(bench: &'b Bench, id: i64) -> Writer<'b> {
        let lake = bench.lake();
        Writer {
            bench,
            columns: lake.columns_of(bench.tip.def()).unwrap(),
            data: lake.data.iter().map(|live| (*live.entry.file).clone()).collect(),
            deletes: lake.deletes.iter().map(|deletes| (*deletes.entry.file).clone()).collect(),
            manifests: Vec::new(),
            id,
            files: 0,
            lake,
        }
    }

    /// Returns the live rows of a file.
    pub fn rows_of(&self, live: &LiveFile) -> RecordBatch {
        let mut gone = Vec::new();
        for deletes in &self.lake.deletes {
            let positions = self.lake.positions(deletes).unwrap();
            positions.into_iter().filter(|of| of.path == live.path).for_each(|of| gone.extend(of.positions));
        }
        gone.sort_unstable();
        let bytes = self.lake.data_file(live).unwrap();
        let mut source = LiveRows::open(bytes, self.columns.clone(), gone, 1 << 20).unwrap();
        let mut batches = Vec::new();
        while let Some(batch) = source.next().unwrap() {
            batches.push(batch);
        }
        concat_batches(&self.columns.arrow, &batches).unwrap()
    }

    /// Rewrites all files, those of each partition into one, with the rows from the last to the first.
    pub fn rewrite_all(mut self) -> Writer<'b> {
        let mut groups: Vec<(FilePartition, Vec<RecordBatch>)> = Vec::new();
        for live in self.lake.data.clone() {
            let file = &live.entry.file;
            let rows = self.rows_of(&live);
            let same = |place: &FilePartition| place.spec == file.spec && place.partition == file.partition;
            match groups.iter_mut().find(|(place, _)| same(place)) {
                Some((_, batches)) => batches.push(rows),
                None => {
                    let place = FilePartition { spec: file.spec, partition: file.partition.clone() };
                    groups.push((place, vec![rows]));
                }
            }
        }
        (self.data, self.deletes) = (Vec::new(), Vec::new());
        for (place, batches) in groups {
            let rows = concat_batches(&self.columns.arrow, &batches).unwrap();
            if rows.num_rows() > 0 {
                self.add(&reversed(&rows), place);
            }
        }
        self
    }

    fn local(&self, path: &str) -> PathBuf {
        self.lake.local(path).unwrap()
    }

    /// Returns a new file name, in a directory of its own.
    pub fn next_name(&mut self) -> String {
        self.files += 1;
        format!(
            "{}/data/part={}/{:05}-{}.parquet",
            self.lake.metadata.location, self.files, self.files, self.id
        )
    }

    /// Adds a data file with these rows, in their order.
    pub fn add(&mut self, rows: &RecordBatch, place: FilePartition) {
        let name = self.next_name();
        let temporary = self.lake.dir.join("data").join(format!("{}-{}.writing", self.id, self.files));
        let store = &self.lake.store;
        let mut writer =
            data_file::Writer::create(store, temporary.clone(), &self.columns, rows.num_rows() as u64, rows)
                .unwrap();
        writer.push(rows).unwrap();
        let file = writer.finish(name.clone(), place, None).unwrap().file;
        let bytes = store.read(&temporary).unwrap().to_vec();
        store.remove(&temporary).unwrap();
        self.put(&name, &bytes);
        self.data.push(file);
    }

    /// Writes a file as another program does, without a sync.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let path = self.local(name);
        if self.lake.store.is_remote() {
            return self.lake.store.write(&path, bytes.to_vec()).unwrap();
        }
        let disk = self.bench.sim.env().disk;
        disk.create_dir_all(path.parent().unwrap()).unwrap();
        disk.create(&path).unwrap().write_at(&[IoSlice::new(bytes)], 0).unwrap();
    }

    /// Adds a position delete file.
    pub fn delete(&mut self, place: FilePartition, positions: Vec<delete_file::Positions>) {
        let name = self.next_name().replace("/part=", "/deletes=");
        let temporary = self.lake.dir.join("data").join(format!("{}-{}.writing", self.id, self.files));
        let store = &self.lake.store;
        let file = delete_file::write(store, temporary.clone(), name.clone(), place, positions).unwrap();
        let bytes = store.read(&temporary).unwrap().to_vec();
        store.remove(&temporary).unwrap();
        self.put(&name, &bytes);
        self.deletes.push(file);
    }

    /// Writes the manifests and their list, and returns the commit.
    pub fn finish(self) -> Replacement {
        let (metadata, location) = (&self.lake.metadata, &self.lake.metadata.location);
        let sequence = metadata.last_sequence_number + 1;
        let mut by_kind: BTreeMap<(i32, bool), Vec<Entry>> = BTreeMap::new();
        for file in self.data.iter().chain(&self.deletes) {
            let is_old = self.lake.data.iter().any(|live| *live.path == *file.path);
            let entry = Entry {
                status: if is_old { Status::Existing } else { Status::Added },
                snapshot_id: self.id,
                sequence,
                file_sequence: sequence,
                file: Arc::new(file.clone()),
            };
            by_kind.entry((file.spec, file.content == Content::Deletes)).or_default().push(entry);
        }
        let mut listed = self.manifests.clone();
        for ((spec, is_deletes), entries) in by_kind {
            let path = format!("{location}/metadata/{}-m{}.avro", self.id, listed.len());
            let of = manifest::ManifestHeader {
                path: path.clone(),
                content: if is_deletes { Content::Deletes } else { Content::Data },
                spec: spec::find(&self.lake.specs, spec).unwrap(),
                schema: "{}",
                schema_id: metadata.current_schema_id,
                snapshot_id: self.id,
                sequence,
            };
            let (bytes, file) = manifest::write(of, &entries);
            self.put(&path, &bytes);
            listed.push(file);
        }
        let list = format!("{location}/metadata/snap-{}-1.avro", self.id);
        let parent = metadata.current_snapshot_id;
        self.put(&list, &manifest::write_list(&listed, self.id, parent, sequence));
        let summary = [("operation", "replace"), ("engine-name", "spark"), ("total-records", "1")];
        Replacement {
            snapshot_id: self.id,
            parent,
            sequence,
            manifest_list: list,
            summary: summary.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            requirements: vec![
                serde_json::json!({ "type": "assert-table-uuid", "uuid": metadata.table_uuid }),
                serde_json::json!({ "type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": parent }),
            ],
        }
    }
}

pub fn reversed(rows: &RecordBatch) -> RecordBatch {
    let last_first = UInt32Array::from_iter_values((0..rows.num_rows() as u32).rev());
    take_record_batch(rows, &last_first).unwrap()
}

/// The outcome of an offered commit, once it is known.
pub type OfferOutcome = Arc<Mutex<Option<ReplacementOutcome>>>;

impl Bench {
    pub fn offered(&self, replace: &Replacement) -> OfferOutcome {
        let told = OfferOutcome::default();
        let tell = told.clone();
        let heard = Box::new(move |outcome| *tell.lock().unwrap() = Some(outcome));
        self.lake().offer(replace.clone(), heard).unwrap();
        told
    }

    /// Offers a commit, and steps until its outcome is known. The steps are not urgent, so that other rows do not land before.
    pub fn offer(&mut self, replace: &Replacement) -> Result<u64> {
        let told = self.offered(replace);
        for _ in 0..20 {
            let stepped = self.step(false);
            match told.lock().unwrap().take() {
                Some(ReplacementOutcome::Committed(version)) => return Ok(version),
                Some(ReplacementOutcome::Refused(error) | ReplacementOutcome::Unknown(error)) => {
                    return Err(error);
                }
                None => {}
            }
            match stepped {
                // A later step will know the outcome.
                Err(error) if self.sim.disk.is_dead() => return Err(error),
                Err(_) => {}
                Ok(progress) => assert!(!matches!(progress, Progress::UpToDate), "nobody looks at it"),
            }
        }
        panic!("an offer is not answered in 20 steps");
    }

    /// Returns the names of all files below the table's directory.
    pub fn all_files(&self) -> Vec<String> {
        let dir = format!("{}/", self.dir().display());
        let all = self.sim.disk.files();
        let inside = |path: &PathBuf| Some(path.to_str()?.split_once(&dir)?.1.to_owned());
        all.iter().filter_map(inside).collect()
    }
}
