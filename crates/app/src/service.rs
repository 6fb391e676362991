//! An open database with its server and all that belongs to it. `serve`, `demo` and `publish` run one, and so does a command
//! for itself if no server runs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::Engine;
use feeds::syslog::Listener;
use server::Server;
use types::{Error, Kind, Result};
use vfs::Env;

use crate::config::{Config, ProfileName};
use crate::control::Control;
use crate::memory::MemoryKeeper;
use crate::recorder::Recorder;
use crate::remote::{self, Remote};
use crate::server_file::{RunningFile, RunningServer};
use crate::units::ByteSize;
use crate::vault::Vault;
use crate::warehouse;

/// Time that open requests get to end when the server stops.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// Time that an opening waits for a killed process to release the directory.
const LEAVING_PATIENCE: Duration = Duration::from_secs(1);

/// Free bytes on the disk below which the start warns: two files of the log, since the next one may not find its space.
const ROOM_BYTES_MIN: u64 = 128 << 20;

/// Largest number of connections of a server that a command runs for itself.
const PRIVATE_CONNECTIONS_MAX: usize = 64;

/// A running database with its server.
pub struct Service {
    engine: Engine,
    sql: query::Sql,
    search: query::Search,
    server: Server,
    recorder: Option<Recorder>,
    vault: Option<Vault>,
    syslog: Option<Listener>,
    control: Control,
    /// The file `server.json`. It is removed before the directory is closed, so that no command connects to a server that
    /// is stopping. `None` for a private server, and if the file could not be written.
    running: Option<RunningFile>,
    address: SocketAddr,
    secret: String,
    /// Keeps freed memory; `None` for the profile `edge`, which has none to spare.
    _memory: Option<MemoryKeeper>,
}

impl Service {
    /// Starts a server that listens at the address of the settings, and writes `server.json` so that commands find it.
    pub fn start(config: &Config) -> Result<Self> {
        crate::port::check(config.server.listen)?;
        let data = &config.server.data;
        let is_new = is_new(data);
        let mut service = Service::open(config, config.server.listen, false)?;
        // The message tells a user who mistyped the directory's name why the database is empty.
        if is_new {
            tracing::info!("there was no database in {}: made a new one", data.display());
        }
        let url = service.url();
        service.running = match RunningServer::this_process(url, service.secret.clone()).write(data) {
            Ok(file) => Some(file),
            // On a full disk the file cannot be written, but rows can still be read. So the server starts.
            Err(error) => {
                tracing::warn!("{error}; commands do not find this server by {}", data.display());
                None
            }
        };
        let engine = service.engine.clone();
        service.recorder = Some(if config.record.enabled {
            Recorder::start(engine, &config.record)?
        } else {
            Recorder::start_retention(engine, &config.record)?
        });
        Ok(service)
    }

    /// Starts a server for this command only: on a free port of the loopback interface, without recording, site, syslog and
    /// catalog.
    pub fn start_private(config: &Config) -> Result<Self> {
        Service::open(config, SocketAddr::from(([127, 0, 0, 1], 0)), true)
    }

    fn open(config: &Config, listen: SocketAddr, private: bool) -> Result<Self> {
        let data = &config.server.data;
        let engine = open_engine(data, engine_options(config)?)?;
        let write_error = engine.status().write_error;
        // The lineage is opened at once, because background work commits later, and the waits below may end the start. The end of
        // a damaged log is unknown.
        let opened_at = write_error.is_none().then(|| engine.opened_at());
        let lineage = lake::Lineage::open(engine.env(), data, opened_at);
        if let Some(error) = write_error {
            tracing::error!("{error}; reads go on, writes are refused; `polynya doctor` shows the extent");
        } else if engine.torn_bytes() > 0 {
            let cut = ByteSize(engine.torn_bytes());
            tracing::warn!(
                "{cut} of commits that were being written at a crash were cut off the log; none was acknowledged"
            );
        }
        // Too little space is only a warning, because reads work without it.
        if let Ok(free) = engine.env().disk.free_bytes(data)
            && free < ROOM_BYTES_MIN
        {
            let free = ByteSize(free);
            tracing::warn!(
                "the disk of {} has {free} free: writes are refused until there is more",
                data.display()
            );
        }
        engine.register(index::column::ColumnMaterializer::new())?;
        let text = index::text::TextMaterializer::new();
        engine.register(text.clone())?;
        let catalog = lake::catalog::TableStore::new(
            engine.env().clone(),
            &lake_options(config)?,
            lake_locations(config),
        )?;
        let lake_options = match warehouse::connect(config, engine.env())? {
            None => lake_options(config)?,
            Some(objects) => lake::Options {
                objects: Some(objects.clone()),
                warehouse: PathBuf::new(),
                location: objects.uri().to_owned(),
                ..lake_options(config)?
            },
        };
        let elsewhere = warehouse::catalog(config, engine.env())?;
        let former = lake_options.objects.is_some() || elsewhere.is_some();
        let former = former.then(|| data.join("lake"));
        let lake_options =
            lake::Options { catalog: elsewhere, former, lineage: Some(lineage), ..lake_options };
        let lake = Arc::new(lake::Materializer::new(lake_options));
        let lake_reads = Some(lake.reads());
        engine.register(lake.clone())?;
        let sql = query::Sql::new(engine.clone(), sql_options(config))?;
        let search = query::Search::new(engine.clone(), text, sql.clone())?;
        // A private server publishes no site.
        let vault = if private { None } else { Some(Vault::start(&engine, &config.site)?) };
        let syslog = if private { None } else { crate::syslog::start(&engine, &config.syslog)? };
        let secret = server::new_secret(&*engine.env().random);
        // A private server needs few connections, whatever the settings say.
        let connections_max = if private { PRIVATE_CONNECTIONS_MAX } else { config.server.connections_max };
        let mut profile = match config.profile {
            ProfileName::Server => server::Options::default(),
            ProfileName::Edge => server::Options::edge(),
        };
        profile.body_bytes_max = usize::try_from(config.server.body_bytes_max.0).unwrap_or(usize::MAX);
        config.share.server(&mut profile);
        let options = server::Options {
            listen,
            owner_hash: Some(server::hash_of(&secret)),
            connections_max,
            idle_time_max: config.server.idle_timeout.0,
            body_time_max: config.server.request_timeout.0,
            record_requests: !private,
            site: (!private).then(|| site::TABLE.to_owned()),
            components: vault
                .iter()
                .filter_map(Vault::part)
                .chain(syslog.iter().map(crate::syslog::part))
                .collect(),
            search: Some(search.clone()),
            lake: Some(lake),
            catalog: (!private).then_some(catalog),
            lake_reads,
            catalog_defaults: warehouse::catalog_defaults(config),
            storm: if private { None } else { storm_settings(data)? },
            ..profile
        };
        let server = Server::start(engine.clone(), sql.clone(), options)?;
        let address = server.local_addr();
        let control = Control::start(engine.clone(), data)?;
        Ok(Service {
            engine,
            sql,
            search,
            server,
            recorder: None,
            vault,
            syslog,
            control,
            running: None,
            address,
            secret,
            _memory: match config.profile {
                ProfileName::Server => Some(MemoryKeeper::start()?),
                ProfileName::Edge => None,
            },
        })
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The state of the site's folders; `None` if there are none.
    pub fn folders(&self) -> Option<feeds::folder::Status> {
        self.vault.as_ref()?.folders()
    }

    /// The key of scope admin for the directory's owner.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// The address at which programs of this machine reach the server.
    pub fn url(&self) -> String {
        let ip = match self.address.ip() {
            ip if !ip.is_unspecified() => ip,
            std::net::IpAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            std::net::IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        };
        format!("http://{}", SocketAddr::new(ip, self.address.port()))
    }

    /// Stops the server: open requests get [`STOP_PATIENCE`] to end, then the directory is closed.
    pub fn stop(self) -> Result<()> {
        let Service { engine, sql, search, server, recorder, vault, syslog, control, running, .. } = self;
        drop(running);
        drop(control);
        if let Some(recorder) = recorder {
            recorder.stop();
        }
        if let Some(syslog) = syslog {
            syslog.stop();
        }
        let cut = server.stop(STOP_PATIENCE);
        if cut > 0 {
            tracing::warn!("{cut} connections were still busy and were cut");
        }
        // The server has stopped, so the following may take its time.
        if let Some(vault) = vault {
            vault.stop();
        }
        search.close();
        sql.close();
        engine.close()
    }
}

/// Returns true if the folder contains no file of a database, or does not exist.
fn is_new(data: &Path) -> bool {
    let is_ours = |name: &str| name == "LOCK" || name == "log" || name.starts_with("manifest-");
    let entries = std::fs::read_dir(data);
    !entries.is_ok_and(|mut entries| {
        entries.any(|entry| entry.is_ok_and(|entry| entry.file_name().to_str().is_some_and(is_ours)))
    })
}

fn engine_options(config: &Config) -> Result<engine::Options> {
    let mut options = match config.profile {
        ProfileName::Server => engine::Options::default(),
        ProfileName::Edge => engine::Options::edge(),
    };
    config.share.engine(&mut options);
    options.zstd_after = config.segments.zstd_after.0;
    let delay = config.bench.sync_delay.0;
    options.remember_for = config.idempotency.keep.0;
    options.remember_max = config.idempotency.keys_max;
    options.history = config.history.keep.0;
    options.history_bytes_max = config.history.bytes_max.0;
    options.log.sync_delay = (!delay.is_zero()).then_some(delay);
    // These two settings can only lower the values of the profile.
    options.seal_rows = options.seal_rows.min(config.bench.seal_rows);
    options.log.file_bytes = options.log.file_bytes.min(config.bench.log_file_bytes.0);
    if !config.log.archive.is_empty() {
        if let Some(uri) = remote::uri(config.log.archive.as_ref()) {
            options.archive_store = Some(Arc::new(Remote::connect(uri, remote::options(config), "")?));
            return Ok(options);
        }
        // The path is absolute, because messages show it to people who may work in another directory.
        let archive = std::path::absolute(&config.log.archive)
            .map_err(|error| Error::io(format!("finding {}", config.log.archive), error))?;
        options.archive = Some(archive);
    }
    Ok(options)
}

/// Returns the program and the directory for a storm that is started from the server's page: this program, and a directory
/// below the data directory. Removes the remains of an earlier storm.
fn storm_settings(data: &Path) -> Result<Option<server::StormSettings>> {
    // The path is absolute, because the storm may run in another working directory.
    let data = std::fs::canonicalize(data)
        .map_err(|error| Error::io(format!("finding {}", data.display()), error))?;
    let root = data.join("storm");
    // A storm that was killed together with its server leaves its directory.
    match std::fs::remove_dir_all(&root) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!("{} of an earlier storm could not be removed: {error}", root.display());
        }
        _ => {}
    }
    Ok(std::env::current_exe().ok().map(|program| server::StormSettings { program, root }))
}

fn sql_options(config: &Config) -> query::Options {
    let mut options = query::Options::new(config.server.data.join("spill"));
    if config.sql.threads > 0 {
        options.threads = config.sql.threads;
    }
    options.memory_bytes = usize::try_from(config.sql.memory_bytes_max.0).unwrap_or(usize::MAX);
    options.concurrent_max = match config.sql.concurrent_max {
        0 => options.threads.max(4),
        wanted => wanted,
    };
    options.deadline = config.sql.deadline.0;
    options
}

fn lake_options(config: &Config) -> Result<lake::Options> {
    let warehouse = config.server.data.join("lake");
    // The location is absolute, because other programs read the lake from other working directories.
    let absolute = std::fs::canonicalize(&config.server.data)
        .map_err(|error| Error::io(format!("finding {}", config.server.data.display()), error))?
        .join("lake");
    let location = absolute.to_str().ok_or_else(|| {
        Error::invalid(format!("the path of {} is not UTF-8, which Iceberg requires", absolute.display()))
            .hint("name another directory with --data")
    })?;
    Ok(lake::Options {
        by_default: config.lake.enabled,
        commit_wait: config.lake.commit_wait.0,
        trickle_wait: config.lake.commit_wait.0 * 6,
        snapshot_age_min: config.lake.keep.0,
        read_bytes_max: usize::try_from(config.lake.read_bytes_max.0).unwrap_or(usize::MAX),
        ..lake::Options::new(warehouse, location)
    })
}

/// Returns the other directories in which tables may be made through the Iceberg catalog.
fn lake_locations(config: &Config) -> Vec<PathBuf> {
    config.lake.locations.0.iter().map(PathBuf::from).collect()
}

/// Opens a data directory. Waits up to [`LEAVING_PATIENCE`] while another process has it open. Each error is one sentence
/// with its remedy.
pub fn open_engine(data: &Path, options: engine::Options) -> Result<Engine> {
    let since = Instant::now();
    crate::connection::refuse_backup(data)?;
    loop {
        match Engine::open(Env::real(), data, options.clone()) {
            // A killed process holds the directory until the kernel has freed its memory.
            Err(error) if error.kind() == Kind::InUse && since.elapsed() < LEAVING_PATIENCE => {
                std::thread::sleep(LEAVING_PATIENCE / 20);
            }
            opened => return opened.map_err(|error| explain(data, error)),
        }
    }
}

fn explain(data: &Path, error: Error) -> Error {
    let place = data.display();
    let is_io = |kind| {
        let source = std::error::Error::source(&error).and_then(|s| s.downcast_ref::<std::io::Error>());
        source.is_some_and(|source| source.kind() == kind)
    };
    match error.kind() {
        Kind::InUse => match RunningServer::find(data) {
            Some(running) => Error::new(
                Kind::InUse,
                format!("a server is running on {place} already, at {} (pid {})", running.url, running.pid),
            )
            .hint(format!(
                "use it, stop it with `kill {}`, or name another directory with --data",
                running.pid
            )),
            None => Error::new(Kind::InUse, format!("{place} is open in another process"))
                .hint("wait for that command to end, or name another directory with --data"),
        },
        Kind::DiskFull => Error::new(Kind::DiskFull, format!("there is no room on the disk of {place}"))
            .hint("free some or name a directory on another disk with --data"),
        Kind::Io if is_io(std::io::ErrorKind::PermissionDenied) => {
            Error::new(Kind::Io, format!("this user may not write in {place}"))
                .hint("change its owner or name another directory with --data")
        }
        Kind::Io if is_io(std::io::ErrorKind::ReadOnlyFilesystem) => {
            Error::new(Kind::Io, format!("{place} is on a file system that is mounted read-only"))
                .hint("name another directory with --data")
        }
        Kind::Io if is_io(std::io::ErrorKind::NotADirectory) || is_io(std::io::ErrorKind::AlreadyExists) => {
            Error::invalid(format!("{place} is not a directory")).hint("name another one with --data")
        }
        // The manifest and its copy are damaged, and nothing can be read without them.
        Kind::Damaged if error.hint_text().is_none() => error.hint(format!(
            "`polynya doctor {place}` says what is damaged; `polynya restore BACKUP NEW_DIRECTORY` makes a directory out of a backup"
        )),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error said that a server was running on the directory, and named a process that had just been killed.
    #[test]
    fn a_directory_that_somebody_is_leaving_is_waited_for() {
        let _limit = testkit::limit(60);
        let dir = testkit::temp_dir("service-leaving");
        let data = dir.path().join("data");
        let leaving = open_engine(&data, engine::Options::default()).unwrap();
        let left = std::thread::spawn(move || {
            std::thread::sleep(LEAVING_PATIENCE / 4);
            leaving.close().unwrap();
        });
        let engine = open_engine(&data, engine::Options::default()).unwrap();
        left.join().unwrap();
        let second = open_engine(&data, engine::Options::default()).err().map(|error| error.kind());
        assert_eq!(second, Some(Kind::InUse), "one that stays is not taken away");
        engine.close().unwrap();
    }

    /// On a full disk the server did not start, although reads need no space.
    #[test]
    fn a_server_that_cannot_say_where_it_is_serves_all_the_same() {
        let _limit = testkit::limit(60);
        let dir = testkit::temp_dir("service-unwritable");
        let data = dir.path().join("data");
        // A directory in the place of the temporary file makes the writing of `server.json` fail.
        std::fs::create_dir_all(data.join("server.json.tmp/full")).unwrap();
        let flag = |path: &str, text: &str| (path.to_owned(), text.to_owned(), "--set".to_owned());
        let data = data.to_str().unwrap();
        let flags = vec![
            flag("server.data", data),
            flag("server.listen", "127.0.0.1:0"),
            flag("record.enabled", "false"),
        ];
        let config =
            Config::load(&crate::config::Sources { flags, ..crate::config::Sources::default() }).unwrap();
        let service = Service::start(&config).unwrap();
        assert!(service.running.is_none());
        let port = service.address.port();
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        service.stop().unwrap();
    }
}
