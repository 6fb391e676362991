"""Builds Iceberg tables file by file, with features that PyIceberg does not write: equality deletes and deletion vectors.

Avro and the schemas of manifests are PyIceberg's, Parquet is pyarrow's, bitmaps are CRoaring's.
"""

import json
import zlib

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS, data_file_with_partition, manifest_entry_schema_with_data_file
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, ListType, NestedField, StructType
from pyroaring import BitMap64

DATA, POSITIONS, EQUALITY = range(3)


class HandmadeTable:
    """A table with one snapshot. The last of `schemas` and of `specs` is the current one."""

    def __init__(self, folder, version, schemas, specs, defaults=None):
        self.folder, self.version, self.schemas, self.specs = folder, version, schemas, specs
        self.defaults = defaults or {}
        self.files = []
        for name in ("data", "metadata"):
            (folder / name).mkdir(parents=True)

    def path(self, name):
        return f"file://{self.folder / name}"

    def add(self, name, **said):
        file = self.folder / "data" / name
        spec = self.specs[said.pop("spec", 0)]
        said = {"file_path": f"file://{file}", "file_size_in_bytes": file.stat().st_size, "spec": spec, "partition": (), **said}
        self.files.append(said)
        return said["file_path"]

    def parquet(self, content, sequence, columns, **said):
        """Adds a Parquet file. `columns`: arrays by field id and name."""
        fields = [
            pa.field(name, values.type, metadata={"PARQUET:field_id": str(field)}) for (field, name), values in columns.items()
        ]
        table = pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields))
        name = f"{len(self.files):03}.parquet"
        pq.write_table(table, self.folder / "data" / name)
        return self.add(
            name, content=content, file_format="PARQUET", record_count=table.num_rows, sequence_number=sequence, **said
        )

    def data(self, sequence, columns, **said):
        return self.parquet(DATA, sequence, columns, **said)

    def equality(self, sequence, ids, columns, **said):
        return self.parquet(EQUALITY, sequence, columns, equality_ids=ids, **said)

    def positions(self, sequence, pairs, **said):
        paths, positions = zip(*sorted(pairs))
        columns = {(2147483546, "file_path"): pa.array(paths), (2147483545, "pos"): pa.array(positions, pa.int64())}
        return self.parquet(POSITIONS, sequence, columns, **said)

    def vectors(self, sequence, deleted):
        """Adds one file with a vector for each data file: (path, positions, further fields of its manifest entry)."""
        name = f"{len(self.files):03}.puffin"
        content, blobs = b"PFA1", []
        for path, positions, _ in deleted:
            body = b"\xd1\xd3\x39\x64" + BitMap64(positions).serialize()
            blob = len(body).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")
            blobs.append({
                "type": "deletion-vector-v1", "fields": [], "snapshot-id": -1, "sequence-number": -1, "offset": len(content),
                "length": len(blob), "properties": {"referenced-data-file": path, "cardinality": str(len(positions))},
            })
            content += blob
        footer = json.dumps({"blobs": blobs}).encode()
        content += b"PFA1" + footer + len(footer).to_bytes(4, "little") + bytes(4) + b"PFA1"
        (self.folder / "data" / name).write_bytes(content)
        for (path, positions, said), blob in zip(deleted, blobs):
            self.add(
                name, content=POSITIONS, file_format="PUFFIN", record_count=len(positions), sequence_number=sequence,
                referenced_data_file=path, content_offset=blob["offset"], content_size_in_bytes=blob["length"], **said,
            )

    def avro(self, name, schema, kind, records, metadata):
        output = PyArrowFileIO().new_output(self.path(name))
        with AvroOutputFile(output, schema, kind, metadata={"write.avro.compression-codec": "gzip", **metadata}) as writer:
            writer.write_block(records)
        return self.path(name)

    def write(self):
        """Writes the metadata file and returns its path. Each file has a manifest of its own."""
        newest = max(file["sequence_number"] for file in self.files)
        manifests = []
        listed = MANIFEST_LIST_FILE_SCHEMAS[self.version]
        for at, said in enumerate(self.files):
            spec, content = said["spec"], 0 if said["content"] == DATA else 1
            partition = spec.partition_type(self.schemas[0])
            of_file = data_file_with_partition(partition, format_version=self.version)
            # PyIceberg 0.12 uses the type `long`, which DuckDB does not accept.
            ids = NestedField(135, "equality_ids", ListType(136, IntegerType(), element_required=True), required=False)
            of_file = StructType(*[ids if field.field_id == 135 else field for field in of_file.fields])
            entry = manifest_entry_schema_with_data_file(format_version=self.version, data_file=of_file)
            values = {**said, "partition": Record(*said["partition"])}
            file = Record(*[values.get(field.name) for field in of_file.fields])
            values = {"status": 1, "snapshot_id": 1, "sequence_number": said["sequence_number"], "data_file": file}
            record = Record(*[values.get(field.name) for field in entry.fields])
            path = self.avro(
                f"metadata/{at:03}.avro", entry, "manifest_entry", [record],
                {"schema": self.schemas[-1].model_dump_json(), "partition-spec": "[]", "partition-spec-id": str(spec.spec_id),
                   "format-version": str(self.version), "content": "deletes" if content else "data"},
            )
            values = {
                "manifest_path": path, "manifest_length": (self.folder / f"metadata/{at:03}.avro").stat().st_size,
                "partition_spec_id": spec.spec_id, "content": content, "sequence_number": newest, "min_sequence_number": 1,
                "added_snapshot_id": 1, "added_files_count": 1, "existing_files_count": 0, "deleted_files_count": 0,
                "added_rows_count": said["record_count"], "existing_rows_count": 0, "deleted_rows_count": 0,
            }
            manifests.append(Record(*[values.get(field.name) for field in listed.fields]))
        listed = self.avro(
            "metadata/list.avro", listed, "manifest_file", manifests,
            {"snapshot-id": "1", "sequence-number": str(newest), "format-version": str(self.version)},
        )
        schemas = [json.loads(schema.model_dump_json()) for schema in self.schemas]
        for schema in schemas:
            for field in schema["fields"]:
                field.pop("initial-default", None)
                if field["id"] in self.defaults:
                    field["initial-default"] = self.defaults[field["id"]]
        metadata = {
            "format-version": self.version, "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1", "location": f"file://{self.folder}",
            "last-sequence-number": newest, "last-updated-ms": 1, "last-column-id": 99, "schemas": schemas,
            "current-schema-id": schemas[-1]["schema-id"], "default-spec-id": self.specs[-1].spec_id,
            "partition-specs": [json.loads(spec.model_dump_json()) for spec in self.specs], "last-partition-id": 1000,
            "default-sort-order-id": 0, "sort-orders": [{"order-id": 0, "fields": []}], "current-snapshot-id": 1,
            "refs": {"main": {"snapshot-id": 1, "type": "branch"}},
            "snapshots": [{
                "snapshot-id": 1, "sequence-number": newest, "timestamp-ms": 1, "summary": {"operation": "append"},
                "manifest-list": listed, "schema-id": schemas[-1]["schema-id"],
            }],
        }
        if self.version == 3:
            metadata["next-row-id"] = 0
        file = self.folder / "metadata/v1.metadata.json"
        file.write_text(json.dumps(metadata))
        return file
