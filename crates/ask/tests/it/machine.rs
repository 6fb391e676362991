//! Questions about the machine, over metrics that are known.

use crate::test_database::*;

const GB: f64 = 1e9;

fn disks(db: &TestDatabase, time: i64, used_percent: &[(&str, f64)]) {
    let rows: Vec<_> = used_percent
        .iter()
        .flat_map(|(device, used)| {
            [
                (time, "filesystem_size", Some(*device), 100.0 * GB),
                (time, "filesystem_free", Some(*device), (100.0 - used) * GB),
            ]
        })
        .collect();
    db.metrics(&rows);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_is_nearly_full_from_ninety_percent_on() {
    let _limit = testkit::limit(120);
    for (used, verdict, figure) in
        [(93.0, "Yes", "93.0 %"), (90.0, "Yes", "90.0 %"), (89.9, "No", "89.9 %"), (20.0, "No", "20.0 %")]
    {
        let db = TestDatabase::new("ask-disk");
        // An older reading does not count.
        disks(&db, NOON - HOUR, &[("data", 99.5)]);
        disks(&db, NOON - SECOND, &[("data", used)]);
        let answer = db.ask("Is the disk nearly full?").await;
        assert!(answer.answer.starts_with(verdict), "{used}: {}", answer.answer);
        says(
            &answer,
            &[
                "the disk of the data directory is",
                figure,
                "of 100.0 GB free",
                "2026-11-21 14:29:59 UTC",
                "90 % or more",
            ],
        );
        assert_eq!(states(&answer), ["metrics answered"]);
        assert_eq!(answer.sources[0].as_of.as_deref(), Some("2026-11-21T14:29:59.000000Z"));
        assert_eq!(column(&answer, "value")[0].as_f64().unwrap().round(), used.round());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_file_system_is_told_and_the_fullest_decides() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-disks");
    disks(&db, NOON - SECOND, &[("data", 40.0), ("backup", 96.5), ("root", 71.0)]);
    let answer = db.ask("is any disk nearly full").await;
    says(
        &answer,
        &[
            "Yes",
            "backup is 96.5 % full",
            "the disk of the data directory is 40.0 % full",
            "root is 71.0 % full",
        ],
    );
    assert_eq!(column(&answer, "device"), ["backup", "root", "data"]);
    // `full` means more than `nearly full`.
    let answer = db.ask("is the disk full?").await;
    says(&answer, &["No", "99 % or more"]);
    // A device is found by its name.
    let answer = db.ask("is the data disk nearly full?").await;
    says(&answer, &["No", "the disk of the data directory is 40.0 % full"]);
    never_says(&answer, &["backup"]);
    let answer = db.ask("is there enough room on the disk?").await;
    says(&answer, &["No"]);
    let answer = db.ask("is less than 5 % of the disk free?").await;
    says(&answer, &["Yes", "3.5 %"]);
    let answer = db.ask("is less than 3 gb free on the backup disk?").await;
    says(&answer, &["No", "3.5 GB"]);
    let answer = db.ask("how full is the disk?").await;
    says(&answer, &["backup is 96.5 % full"]);
    assert!(!answer.answer.starts_with("Yes") && !answer.answer.starts_with("No"), "{}", answer.answer);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_reading_is_called_old() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-old");
    disks(&db, NOON - 3 * HOUR, &[("data", 50.0)]);
    let answer = db.ask("is the disk nearly full?").await;
    says(&answer, &["No", "3 h old", "nothing was recorded since"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_metrics_nothing_is_claimed() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-none");
    let answer = db.ask("is the disk nearly full?").await;
    assert!(
        answer.answer.starts_with("No metrics are recorded here; start with `polynya demo`"),
        "{}",
        answer.answer
    );
    says(&answer, &["You can ask about"]);
    never_says(&answer, &["Yes", "No:"]);
    assert_eq!(states(&answer), ["metrics nothing"]);
    assert!(answer.sources[0].detail.as_ref().unwrap().contains("polynya demo"));
    assert!(answer.sections.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_are_compared_now_and_over_time() {
    let _limit = testkit::limit(120);
    let db = TestDatabase::new("ask-cpu");
    let readings = [(30 * MINUTE, 10.0), (20 * MINUTE, 85.0), (10 * MINUTE, 40.0), (SECOND, 15.0)];
    let rows: Vec<_> = readings.iter().map(|(ago, busy)| (NOON - ago, "cpu_busy", None, *busy)).collect();
    db.metrics(&rows);
    db.metrics(&[(NOON - 2 * HOUR, "cpu_busy", None, 99.0)]);
    db.metrics(&[
        (NOON - SECOND, "memory_total", None, 8.0 * GB),
        (NOON - SECOND, "memory_used", None, 6.0 * GB),
        (NOON - SECOND, "load_1m", None, 2.5),
        (NOON - SECOND, "core_busy", Some("cpu0"), 20.0),
        (NOON - SECOND, "core_busy", Some("cpu1"), 10.0),
        (NOON - SECOND, "disk_busy", Some("sda"), 3.0),
        (NOON - SECOND, "net_received", Some("eth0"), 2_000.0),
        (NOON - SECOND, "net_sent", Some("eth0"), 1_000.0),
    ]);
    for (q, expected) in [
        ("is the cpu above 80 %?", &["No", "15.0 %"][..]),
        ("is the cpu below 20 percent", &["Yes"]),
        ("was the cpu above 80 % in the last hour?", &["Yes", "4 readings", "1 of them was above 80 %"]),
        ("was the cpu above 90 % in the last hour?", &["No"]),
        ("was the cpu ever above 90 % in the last 3 hours?", &["Yes", "5 readings"]),
        ("average cpu in the last hour", &["37.5 % on average"]),
        ("highest cpu in the last hour", &["85.0 % at the highest"]),
        ("is the cpu not above 80 %", &["Yes"]),
        ("is the memory nearly full?", &["No", "75.0 % used", "2.0 GB of 8.0 GB free"]),
        ("is memory usage above 70%?", &["Yes"]),
        ("how much ram is free", &["2.0 GB of 8.0 GB free"]),
        ("is the load high?", &["Yes", "2.5", "2, the number of cores"]),
        ("is the load above 3?", &["No"]),
        ("network traffic", &["Network, received: eth0 is 2.0 kB/s", "Network, sent: eth0 is 1.0 kB/s"]),
        ("is the disk busy?", &["No", "sda is 3.0 % busy"]),
        ("core_busy", &["cpu0 is 20"]),
    ] {
        let answer = db.ask(q).await;
        says(&answer, expected);
        assert_eq!(states(&answer), ["metrics answered"], "{q}");
    }
    // Questions for the time at which a condition held.
    let answer = db.ask("when was the cpu above 80 %?").await;
    says(
        &answer,
        &[
            "2 of them were above 80 %, the first at 2026-11-21 12:30:00 UTC, the last at 2026-11-21 14:10:00 UTC",
        ],
    );
    let answer = db.ask("when was the cpu above 80 % in the last hour").await;
    says(&answer, &["1 of them was above 80 %, at 2026-11-21 14:10:00 UTC"]);
    let never = db.ask("when was the cpu above 99.5 %").await;
    says(&never, &["None of them were above 99.5 %"]);
    for answer in [&answer, &never] {
        never_says(answer, &["Yes", "No:", "Not understood"]);
    }
    says(&db.ask("when did the load change its mind").await, &["Not understood here"]);
    // A bound in bytes cannot be compared with a percentage.
    let answer = db.ask("is the cpu above 5 gb?").await;
    says(&answer, &["cannot be compared"]);
    never_says(&answer, &["Yes", "No:"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_are_told_by_name() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-processes");
    db.processes(&[
        (NOON - HOUR, "gone", 99.0, 9_000_000),
        (NOON - 2 * SECOND, "small", 1.0, 1_000),
        (NOON - SECOND, "large", 2.0, 5_000_000),
        (NOON - SECOND, "busy", 80.0, 2_000),
    ]);
    let answer = db.ask("which process uses the most memory?").await;
    says(
        &answer,
        &["polynya.processes by name in the last minute: “large”: 5.0 MB, “busy”: 2.0 kB, “small”: 1.0 kB"],
    );
    let answer = db.ask("which processes used the most cpu in the last 2 hours").await;
    says(&answer, &["“gone”: 99 %, “busy”: 80 %"]);
    let answer = db.ask("how many processes?").await;
    says(&answer, &["polynya.processes has 4 rows"]);
}
