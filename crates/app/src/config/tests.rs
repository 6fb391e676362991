use super::*;

fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("polynya.toml");
    std::fs::write(&path, text).unwrap();
    (dir, path)
}

fn variable(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

#[test]
fn no_file_is_needed() {
    let config = Config::load(&Sources::default()).unwrap();
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:8484");
    assert_eq!(config.server.data, Path::new("./polynya-data"));
    assert_eq!(config.server.body_bytes_max.0, 64 << 20);
    assert_eq!(config.server.idle_timeout.0.as_secs(), 150);
}

#[test]
fn the_environment_wins_over_the_file_and_a_flag_over_both() {
    let (_dir, path) = file("[server]\nlisten = \"127.0.0.1:1\"\ndata = \"from-file\"\n[sql]\nthreads = 3\n");
    let mut sources = Sources { file: Some(path.clone()), ..Sources::default() };
    let config = Config::load(&sources).unwrap();
    assert_eq!((config.server.listen.port(), config.sql.threads), (1, 3));

    sources.variables = vec![variable("POLYNYA_LISTEN", "[::1]:2"), variable("POLYNYA_SQL_THREADS", "5")];
    let config = Config::load(&sources).unwrap();
    assert_eq!((config.server.listen.to_string().as_str(), config.sql.threads), ("[::1]:2", 5));

    sources.flags = vec![("server.listen".into(), "0.0.0.0:3".into(), "--listen".into())];
    let config = Config::load(&sources).unwrap();
    assert_eq!((config.server.listen.port(), config.sql.threads), (3, 5));
    assert_eq!(config.server.data, Path::new("from-file"));

    let explained = config.explain();
    let source_of = |name: &str| {
        let line = explained.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_once("# ").unwrap().1.to_owned()
    };
    assert_eq!(source_of("listen = "), "--listen");
    assert_eq!(source_of("data = "), path.display().to_string());
    assert_eq!(source_of("threads = "), "POLYNYA_SQL_THREADS");
    assert_eq!(source_of("deadline = "), "built-in default");
}

#[test]
fn printed_settings_can_be_read_back() {
    let (_dir, path) = file(&Config::load(&Sources::default()).unwrap().explain());
    let read = Config::load(&Sources { file: Some(path), ..Sources::default() }).unwrap();
    assert_eq!(read.server.body_bytes_max.0, 64 << 20);
    assert_eq!(read.sql.concurrent_max, 0);
}

#[test]
fn the_example_file_holds_every_setting_and_reads_as_the_defaults_when_uncommented() {
    let text = example();
    assert!(SETTINGS.iter().all(|setting| text.contains(setting.env)));
    let uncommented: Vec<&str> = text
        .lines()
        .map(|line| line.strip_prefix("# ").filter(|rest| rest.contains(" = ")).unwrap_or(line))
        .collect();
    let (_dir, path) = file(&uncommented.join("\n"));
    let read = Config::load(&Sources { file: Some(path), ..Sources::default() }).unwrap();
    assert_eq!(read.record.keep.0.as_secs(), 86_400);
}

#[test]
fn a_size_and_a_time_may_be_bare_numbers_in_the_file() {
    let (_dir, path) = file("[server]\nbody_bytes_max = 1024\nidle_timeout = 2\n");
    let read = Config::load(&Sources { file: Some(path), ..Sources::default() }).unwrap();
    assert_eq!((read.server.body_bytes_max.0, read.server.idle_timeout.0.as_millis()), (1024, 2000));
}

#[test]
fn an_unknown_setting_is_an_error_that_names_the_nearest() {
    for (text, near) in [
        ("[server]\nlisten_on = \"x\"\n", "server.listen"),
        ("[sql]\nthread = 1\n", "sql.threads"),
        ("[sqll]\nthreads = 1\n", "sql.threads"),
    ] {
        let (_dir, path) = file(text);
        let error =
            Config::load(&Sources { file: Some(path), ..Sources::default() }).unwrap_err().to_string();
        assert!(error.contains(&format!("did you mean `{near}`")), "{error}");
        assert!(!error.contains('\n'), "one sentence: {error}");
    }
    let sources = Sources { variables: vec![variable("POLYNYA_LISTN", "x")], ..Sources::default() };
    Config::load(&sources).unwrap();
    let warnings = Config::unknown_variables(&sources);
    assert!(warnings[0].contains("did you mean POLYNYA_LISTEN"), "{warnings:?}");
}

/// The hint for `--set sql.threads` proposed `--set server.listen=…`.
#[test]
fn a_setting_without_a_value_is_told_how_it_gets_one() {
    for (path, said) in [
        (
            "sql.threads",
            "--set sql.threads has no value; write --set sql.threads=VALUE; write a whole number, from 0 to 1024",
        ),
        ("sql.thread", "--set sql.thread has no value; did you mean --set sql.threads=VALUE?"),
        ("weather", "--set weather has no value; write --set NAME=VALUE; `polynya config` lists the names"),
    ] {
        assert_eq!(without_value(path).to_string(), said);
    }
}

#[test]
fn a_wrong_value_names_the_file_the_setting_and_the_cure() {
    for (text, parts) in [
        ("[sql]\nthreads = \"many\"\n", ["sql.threads", "whole number"]),
        ("[server]\nidle_timeout = \"soon\"\n", ["server.idle_timeout", "write a time like"]),
        ("[server]\nlisten = \"nowhere\"\n", ["server.listen", "127.0.0.1:8484"]),
        (
            "[log]\nformat = \"xml\"\n",
            ["`log.format`: `text` or `json` is expected, `xml` was given", "write `text`"],
        ),
        ("[log]\nformat = \"jsn\"\n", ["`jsn` was given", "did you mean `json`?"]),
        ("[log]\nlevel = \"loud\"\n", ["`log.level`: `loud` is not a log level", "write error, warn"]),
        ("[log]\nlevel = \"info,lake=debg\"\n", ["`debg` is not a log level", "did you mean `debug`?"]),
        ("[sql]\nthreads = -1\n", ["`sql.threads`: `-1` does not fit", "write a whole number"]),
        ("[sql]\nthreads = [1]\n", ["`sql.threads`: a list does not fit", "write a whole number"]),
        ("[site]\nvault = 3\n", ["`site.vault`: the value does not fit", "commas between"]),
        ("[site]\nraw_html = \"maybe\"\n", ["`site.raw_html`: `maybe` does not fit", "true or false"]),
        ("[server]\nbody_bytes_max = true\n", ["`server.body_bytes_max`: the value does not fit", "64 MiB"]),
        ("[server\n", ["polynya.toml", "line 1"]),
        ("threads = 3\n", ["threads", "no setting"]),
    ] {
        let (_dir, path) = file(text);
        let error =
            Config::load(&Sources { file: Some(path), ..Sources::default() }).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)) && error.contains("polynya.toml"), "{error}");
        assert!(!error.contains('\n'), "one sentence: {error}");
        for ours in ["usize", "u64", "i64", "OneOrMore", "untagged", "struct ", "signed int"] {
            assert!(!error.contains(ours), "{error}");
        }
    }
    let sources =
        Sources { flags: vec![("sql.threads".into(), "abc".into(), "--set".into())], ..Sources::default() };
    let error = Config::load(&sources).unwrap_err().to_string();
    assert_eq!(
        error,
        "--set: `sql.threads`: `abc` is not a whole number; write a whole number, from 0 to 1024"
    );
    for (path, text, said) in [
        (
            "log.format",
            "xml",
            "--set: `log.format`: `text` or `json` is expected, `xml` was given; write `text` or `json`",
        ),
        ("log.level", "loud", "--set: `log.level`: `loud` is not a log level; write error, warn, info"),
        ("log.level", "wran", "--set: `log.level`: `wran` is not a log level; did you mean `warn`?"),
    ] {
        let flags = vec![(path.to_owned(), text.to_owned(), "--set".to_owned())];
        let error = Config::load(&Sources { flags, ..Sources::default() }).unwrap_err().to_string();
        assert!(error.starts_with(said), "{error}");
    }
    let sources = Sources { variables: vec![variable("POLYNYA_SQL_THREADS", "x")], ..Sources::default() };
    let error = Config::load(&sources).unwrap_err().to_string();
    assert!(error.contains("POLYNYA_SQL_THREADS") && error.contains("whole number"), "{error}");
    let missing = Sources { file: Some("nowhere/polynya.toml".into()), ..Sources::default() };
    assert!(Config::load(&missing).unwrap_err().to_string().contains("polynya config --example"));
}

/// A million threads aborted the process, and a deadline of 0 s let no statement run.
#[test]
fn a_value_out_of_its_range_is_refused_wherever_it_comes_from() {
    for (path, text) in [
        ("sql.threads", "999999999"),
        ("sql.deadline", "0"),
        ("sql.memory_bytes_max", "0"),
        ("server.body_bytes_max", "0"),
        ("server.body_bytes_max", "2 GiB"),
        ("server.connections_max", "0"),
        ("server.idle_timeout", "0 s"),
        ("record.keep", "0 s"),
        ("record.processes", "51"),
        ("bench.sync_delay", "1 h"),
    ] {
        let setting = settings::find(path).unwrap();
        let (least, most) = setting.range.unwrap();
        let (section, name) = path.split_once('.').unwrap();
        let (_dir, written) = file(&format!("[{section}]\n{name} = \"{text}\"\n"));
        let bare = matches!(setting.form, ValueForm::Count);
        if bare {
            std::fs::write(&written, format!("[{section}]\n{name} = {text}\n")).unwrap();
        }
        for sources in [
            Sources { file: Some(written), ..Sources::default() },
            Sources { variables: vec![variable(setting.env, text)], ..Sources::default() },
            Sources { flags: vec![(path.into(), text.into(), "--set".into())], ..Sources::default() },
        ] {
            let error = Config::load(&sources).unwrap_err().to_string();
            for part in [&format!("`{path}`"), text, least, most] {
                assert!(error.contains(part), "{part} in {error}");
            }
        }
        for edge in [least, most] {
            let flags = vec![(path.to_owned(), edge.to_owned(), "--set".to_owned())];
            Config::load(&Sources { flags, ..Sources::default() }).unwrap();
        }
    }
}

#[test]
fn a_number_in_the_file_is_printed_back() {
    let (_dir, path) = file("[sql]\nthreads = 3\n");
    let config = Config::load(&Sources { file: Some(path), ..Sources::default() }).unwrap();
    assert!(config.explain().contains("threads = 3 "), "{}", config.explain());
}

#[test]
fn a_listen_address_may_be_a_port_alone() {
    let (_dir, path) = file("[server]\nlisten = 9000\n");
    let config = Config::load(&Sources { file: Some(path), ..Sources::default() }).unwrap();
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:9000");
    let flags = vec![("server.listen".into(), "localhost:99999".into(), "--listen".into())];
    let error = Config::load(&Sources { flags, ..Sources::default() }).unwrap_err().to_string();
    assert!(error.contains("`99999` is not a port") && error.contains("127.0.0.1:8484"), "{error}");
}

#[test]
fn the_profile_for_small_machines_changes_defaults_and_nothing_that_was_given() {
    let (_dir, path) = file("profile = \"edge\"\n[sql]\nthreads = 3\n");
    let mut sources = Sources { file: Some(path), ..Sources::default() };
    sources.flags = vec![("server.body_bytes_max".into(), "7 MiB".into(), "--set".into())];
    let config = Config::load(&sources).unwrap();
    assert_eq!(config.profile, ProfileName::Edge);
    assert_eq!((config.sql.threads, config.sql.memory_bytes_max.0), (3, 16 << 20));
    assert_eq!((config.server.body_bytes_max.0, config.server.connections_max), (7 << 20, 256));
    let explained = config.explain();
    assert!(explained.starts_with("profile = \"edge\""), "{explained}");
    assert!(explained.contains("# profile \"edge\""), "{explained}");
    let (_dir, path) = file(&explained);
    let read = Config::load(&Sources { file: Some(path), ..Sources::default() }).unwrap();
    assert_eq!((read.profile, read.sql.threads, read.history.keep.0.as_secs()), (ProfileName::Edge, 3, 60));

    // Each default of the profile belongs to a setting and differs from the built-in default.
    for (path, text) in settings::EDGE {
        let setting = settings::find(path).unwrap();
        assert_ne!(setting.default, *text, "{path}");
        assert_eq!(check_range(setting, text), Ok(()));
        SettingValue::new(setting, text, "profile").unwrap();
    }
    let sources = Sources { variables: vec![variable("POLYNYA_PROFILE", "egde")], ..Sources::default() };
    let error = Config::load(&sources).unwrap_err().to_string();
    assert!(error.contains("`profile`") && error.contains("did you mean `edge`"), "{error}");
    let (_dir, path) = file("profil = \"edge\"\n");
    let error = Config::load(&Sources { file: Some(path), ..Sources::default() }).unwrap_err().to_string();
    assert!(error.contains("did you mean `profile`"), "{error}");
}

#[test]
fn segments_are_compressed_after_a_time_or_not_at_all() {
    assert_eq!(Config::load(&Sources::default()).unwrap().segments.zstd_after.0, None);
    for (text, days) in [("\"7d\"", Some(7)), ("\"off\"", None), ("86400", Some(1))] {
        let (_dir, path) = file(&format!("[segments]\nzstd_after = {text}\n"));
        let config = Config::load(&Sources { file: Some(path), ..Sources::default() }).unwrap();
        let after = config.segments.zstd_after.0;
        assert_eq!(after.map(|after| after.as_secs()), days.map(|days| days * 86_400), "{text}");
    }
    let (_dir, path) = file("[segments]\nzstd_after = \"never\"\n");
    let error = Config::load(&Sources { file: Some(path), ..Sources::default() }).unwrap_err().to_string();
    assert!(error.contains("`segments.zstd_after`") && error.contains("or off"), "{error}");
    let flags = vec![("segments.zstd_after".into(), "4000 d".into(), "--set".into())];
    let error = Config::load(&Sources { flags, ..Sources::default() }).unwrap_err().to_string();
    assert!(error.contains("4000 d is more than 3650 d"), "{error}");
}

#[test]
fn secrets_are_shown_nowhere() {
    let (_dir, path) = file("[lake]\ncatalog = \"http://host\"\ncatalog_token = \"hush-hush\"\n");
    let mut sources = Sources { file: Some(path), ..Sources::default() };
    sources.variables.push(variable("POLYNYA_LAKE_CATALOG_CREDENTIAL", "me:hush-hush"));
    let config = Config::load(&sources).unwrap();
    assert_eq!(config.lake.catalog_token.0, "hush-hush");
    assert_eq!(config.lake.catalog_credential.0, "me:hush-hush");
    let values: Vec<String> = config.values().map(|(_, value, source)| format!("{value} {source}")).collect();
    for shown in [config.explain(), format!("{config:?}"), values.join("\n")] {
        assert!(!shown.contains("hush"), "{shown}");
    }
    assert!(config.explain().contains("# catalog_token (not shown)"), "{}", config.explain());
    let (_dir, explained) = file(&config.explain());
    assert_eq!(
        Config::load(&Sources { file: Some(explained), ..Sources::default() }).unwrap().lake.catalog,
        "http://host"
    );
    let (_dir, wrong) = file("[lake]\ncatalog_token = 4711\n");
    let error = Config::load(&Sources { file: Some(wrong), ..Sources::default() }).unwrap_err().to_string();
    assert!(error.contains("`lake.catalog_token`") && !error.contains("4711"), "{error}");
}

/// In 512 MiB of memory the default profile was killed within seconds: its bounds assumed several times as much.
#[test]
fn defaults_fit_into_the_memory_that_there_is_and_what_was_given_stays_and_is_named() {
    let limit = |mib: u64| Some(crate::memory::Limit { bytes: mib << 20, from: "memory.max".into() });
    let memory_warning = |config: &Config| crate::memory::share::memory_warning(config).unwrap_or_default();
    let config = Config::load(&Sources { memory: limit(16_384), ..Sources::default() }).unwrap();
    assert_eq!((config.sql.memory_bytes_max.0, memory_warning(&config)), (512 << 20, String::new()));

    let small = Sources { memory: limit(512), ..Sources::default() };
    let config = Config::load(&small).unwrap();
    assert_eq!(config.sql.memory_bytes_max.0, 67 << 20);
    assert!(config.explain().contains("# the available memory"), "{}", config.explain());
    assert!(
        memory_warning(&config).contains("512 MiB of memory (memory.max)"),
        "{}",
        memory_warning(&config)
    );

    let (_dir, path) = file("[sql]\nmemory_bytes_max = \"2 GiB\"\n");
    let config = Config::load(&Sources { file: Some(path), ..small.clone() }).unwrap();
    assert_eq!(config.sql.memory_bytes_max.0, 2 << 30);
    let said = memory_warning(&config);
    assert!(said.contains("sql.memory_bytes_max = 2 GiB") && said.contains("where 67 MiB fit"), "{said}");
    assert!(!said.contains("lake.read_bytes_max"), "{said}");

    let flags = vec![("profile".into(), "edge".into(), "--set".into())];
    let config = Config::load(&Sources { flags, ..small }).unwrap();
    assert_eq!((config.sql.memory_bytes_max.0, memory_warning(&config)), (16 << 20, String::new()));
}
