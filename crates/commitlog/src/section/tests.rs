use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::buffer::MutableBuffer;
use testkit::Rng;
use types::Lsn;

use super::*;

fn batch(rows: i64) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..rows).map(|i| format!("text {i}"))));
    RecordBatch::try_from_iter([("n", numbers), ("t", texts)]).unwrap()
}

fn run(lsn_offset: u32, count: u32) -> CommitRun {
    CommitRun { lsn_offset, count }
}

fn rows(runs: Vec<CommitRun>, rows: i64) -> Section {
    Section::Rows(InsertedRows {
        table: TableId(4),
        schema_version: SchemaVersion(2),
        first_row: RowId(100),
        runs,
        batch: batch(rows),
    })
}

fn sample() -> Builder {
    let mut frame = Builder::new(Lsn(10), 77);
    for _ in 0..4 {
        frame.commit();
    }
    frame.push(rows(vec![run(0, 2), run(1, 98), run(3, 200)], 300));
    frame.push(rows(vec![], 0));
    frame.deletes(Deletes {
        table: TableId(5),
        runs: vec![run(2, 4)],
        rows: vec![RowId(7), RowId(3), RowId(i64::MAX as u64), RowId(1)],
    });
    frame.idempotency(Idempotency { lsn_offset: 3, scope: "ci".into(), key: "k".into(), answer: vec![1, 2] });
    frame.cursor(Cursor { lsn_offset: 0, name: "jetstream".into(), value: vec![0; 600] });
    frame.edit(1, Edit::DropTable(TableId(9)));
    frame
}

fn encoded(frame: &Builder) -> Result<(Vec<u8>, FrameHeader)> {
    let mut gather = Gather::default();
    encode_frame(&mut gather, frame, &mut SchemaWriter::default())?;
    let header = FrameHeader {
        payload_crc: gather.crc_from(FRAME_HEADER_BYTES),
        payload_len: (gather.len() - 64) as u32,
        salt: 1,
        epoch: 1,
        first_lsn: frame.first_lsn(),
        commits: frame.commits(),
        sections: frame.sections().len() as u32,
        time: frame.time(),
        durable_lsn: Lsn(0),
    };
    gather.set_start(&header.to_bytes());
    Ok((gather.to_vec(), header))
}

fn decoded(bytes: &[u8], header: &FrameHeader) -> Result<Vec<Section>> {
    let mut buffer = MutableBuffer::with_capacity(bytes.len());
    buffer.extend_from_slice(bytes);
    decode_frame(&buffer.into(), header, &mut SchemaReader::default())
}

#[test]
fn every_section_survives_storage() {
    let frame = sample();
    let (bytes, header) = encoded(&frame).unwrap();
    assert!(bytes.len().is_multiple_of(8));
    assert_eq!(FrameHeader::read(&bytes, 1, Some(1)), Some(header));
    assert_eq!(header.payload_crc, crc32c::crc32c(&bytes[64..]));
    assert_eq!(decoded(&bytes, &header).unwrap(), frame.sections());
    assert!(
        frame.bytes() >= bytes.len() as u64,
        "the estimate is {} for {} bytes",
        frame.bytes(),
        bytes.len()
    );
}

#[test]
fn arrow_buffers_are_used_where_the_frame_was_read() {
    let (bytes, header) = encoded(&sample()).unwrap();
    let mut buffer = MutableBuffer::with_capacity(bytes.len());
    buffer.extend_from_slice(&bytes);
    let buffer: Buffer = buffer.into();
    let memory = buffer.as_ptr_range();
    let sections = decode_frame(&buffer, &header, &mut SchemaReader::default()).unwrap();
    let Section::Rows(rows) = &sections[0] else { panic!("rows") };
    for column in rows.batch.columns() {
        for part in column.to_data().buffers() {
            assert!(memory.contains(&part.as_ptr()));
        }
    }
}

#[test]
fn a_frame_that_breaks_its_own_promises_is_never_written() {
    let breaches: [fn(&mut Builder); 6] = [
        |frame| frame.push(rows(vec![run(0, 2)], 3)),
        |frame| frame.push(rows(vec![run(1, 2), run(1, 1)], 3)),
        |frame| frame.push(rows(vec![run(4, 3)], 3)),
        |frame| frame.edit(4, Edit::DropTable(TableId(1))),
        |frame| frame.deletes(Deletes { table: TableId(1), runs: vec![], rows: vec![RowId(1)] }),
        |frame| {
            frame.rows(InsertedRows {
                table: TableId(1),
                schema_version: SchemaVersion(1),
                first_row: RowId(0),
                runs: vec![run(0, 1)],
                batch: batch(1),
            });
        },
    ];
    for breach in breaches {
        let mut frame = sample();
        breach(&mut frame);
        assert_eq!(encoded(&frame).unwrap_err().kind(), Kind::Internal);
    }
}

#[test]
fn bytes_whose_checksum_was_forged_never_panic() {
    let _limit = testkit::limit(60);
    let (bytes, header) = encoded(&sample()).unwrap();
    for cut in (64..bytes.len()).step_by(8) {
        assert!(decoded(&bytes[..cut], &header).is_err(), "cut at {cut}");
    }
    let mut rng = Rng::new(1);
    for _ in 0..5000 {
        let mut bad = bytes.clone();
        let at = 64 + rng.index(bad.len() - 64);
        bad[at] = rng.next_u64() as u8;
        let _ = decoded(&bad, &header);
    }
}

#[test]
fn a_section_of_unknown_kind_is_from_a_newer_version() {
    let (mut bytes, header) = encoded(&sample()).unwrap();
    bytes[64] = 99;
    assert_eq!(decoded(&bytes, &header).unwrap_err().kind(), Kind::Newer);
}
