//! A command's connection to the data: to the running server of its directory, else to a private server that opens the
//! directory for this command. Either way the command speaks HTTP, so that it does the same with and without a server.

use std::path::Path;

use types::{Error, Kind, Result};
use vfs::Env;

use crate::cli::ServerArgs;
use crate::client::HttpClient;
use crate::config::Config;
use crate::server_file::RunningServer;
use crate::service::Service;

/// Explains why a directory without a log cannot be read: it is a backup, it has lost its log, or it holds no data.
fn without_log(data: &Path) -> Error {
    let place = data.display();
    let env = Env::real();
    if let Err(error) = refuse_backup(data) {
        return error;
    }
    if engine::manifest::exists(&env, data) {
        return Error::damaged(format!("{place} lacks its folder `log`, which holds the newest commits")).hint(
            format!(
                "put it back, or restore a backup with `polynya restore BACKUP NEW_DIRECTORY`; `polynya doctor {place}` says what \
                 is left"
            ),
        );
    }
    Error::not_found(format!("there is no data in {place}"))
        .hint("`polynya demo` or `polynya ingest FILE` makes some; --data names another directory")
}

/// Fails with `invalid` if the directory is a backup, because opening a backup would change it.
pub fn refuse_backup(data: &Path) -> Result<()> {
    let place = data.display();
    match engine::backup::is_backup(&Env::real(), data) {
        Ok(true) => Err(Error::invalid(format!("{place} is a backup, not a data directory")).hint(format!(
            "make one out of it: `polynya restore {place} NEW_DIRECTORY`; `polynya doctor {place}` checks it"
        ))),
        _ => Ok(()),
    }
}

/// An open connection to the data, and the private server behind it if there is one.
pub struct DataConnection {
    client: HttpClient,
    /// A client of the directory's control socket; `None` if the server was named by a URL.
    control: Option<HttpClient>,
    /// The server that this command runs for itself.
    own: Option<Service>,
    place: String,
}

impl DataConnection {
    /// Connects a command that only reads. Fails if the directory does not exist or has no log.
    pub async fn open(config: &Config, server: &ServerArgs) -> Result<Self> {
        let data = &config.server.data;
        if server.url.is_none() && !data.join("log").is_dir() {
            return Err(without_log(data));
        }
        Self::open_or_create(config, server).await
    }

    /// Connects a command that may write. Creates the directory if it does not exist.
    pub async fn open_or_create(config: &Config, server: &ServerArgs) -> Result<Self> {
        let data = &config.server.data;
        if let Some(url) = &server.url {
            let client = HttpClient::new(url, server.key.clone())?;
            let place = format!("server {url}");
            return Ok(DataConnection { client, control: None, own: None, place });
        }
        if let Some(running) = RunningServer::find(data) {
            return Self::to_server(data, running, server);
        }
        let starting = config.clone();
        let started = tokio::task::spawn_blocking(move || Service::start_private(&starting)).await;
        let own = match started
            .map_err(|error| Error::internal("opening the directory failed").caused_by(error))?
        {
            // A server that was just starting has the directory now.
            Err(error) if error.kind() == Kind::InUse => {
                return RunningServer::find(data)
                    .map_or(Err(error), |running| Self::to_server(data, running, server));
            }
            started => started?,
        };
        let client = HttpClient::new(&own.url(), server.key.clone().or(Some(own.secret().to_owned())))?;
        let control = Some(HttpClient::socket(data));
        Ok(DataConnection { client, control, own: Some(own), place: format!("directory {}", data.display()) })
    }

    fn to_server(data: &Path, running: RunningServer, server: &ServerArgs) -> Result<Self> {
        let client = HttpClient::new(&running.url, server.key.clone().or(Some(running.secret)))?;
        let control = Some(HttpClient::socket(data));
        Ok(DataConnection { client, control, own: None, place: format!("server {}", running.url) })
    }

    /// Runs `ask`, then closes the connection, even after a failure. An error of `ask` wins over one of closing.
    pub async fn with<T>(self, ask: impl AsyncFnOnce(&mut DataConnection) -> Result<T>) -> Result<T> {
        let mut connection = self;
        let outcome = ask(&mut connection).await;
        let closed = connection.close().await;
        let answer = outcome?;
        closed.map(|()| answer)
    }

    pub fn client(&mut self) -> &mut HttpClient {
        &mut self.client
    }

    pub fn control(&mut self) -> Option<&mut HttpClient> {
        self.control.as_mut()
    }

    /// The server or directory that the command talks to, for messages.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Closes the connections and stops the private server. That runs on another thread, because it blocks until the
    /// server's threads have ended.
    async fn close(self) -> Result<()> {
        drop((self.client, self.control));
        let Some(own) = self.own else { return Ok(()) };
        let stopped = tokio::task::spawn_blocking(move || own.stop()).await;
        stopped.map_err(|error| Error::internal("closing the directory failed").caused_by(error))?
    }
}
