//! How a command reaches the data: through the running server of its directory, else by opening the directory and
//! serving itself. Either way it speaks HTTP, so that a command does the same with and without a server.

use std::path::Path;

use types::{Error, Result};
use vfs::Env;

use crate::cli::Reach;
use crate::client::Client;
use crate::config::Config;
use crate::running::Running;
use crate::service::Service;

/// Why nothing can be read from a directory that has no log.
fn without_log(data: &Path) -> Error {
    let place = data.display();
    let env = Env::real();
    if let Err(error) = refuse_backup(data) {
        return error;
    }
    if engine::manifest::is_there(&env, data) {
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

/// A backup is not opened: it would be changed by that.
pub fn refuse_backup(data: &Path) -> Result<()> {
    let place = data.display();
    match engine::backup::is_backup(&Env::real(), data) {
        Ok(true) => Err(Error::invalid(format!("{place} is a backup, and no data directory")).hint(format!(
            "make one out of it: `polynya restore {place} NEW_DIRECTORY`; `polynya doctor {place}` checks it"
        ))),
        _ => Ok(()),
    }
}

pub struct Door {
    client: Client,
    /// The directory's own door; none through a URL.
    control: Option<Client>,
    /// The server that this command runs for itself.
    own: Option<Service>,
    place: String,
}

impl Door {
    /// For commands that read: a directory that does not exist is an error.
    pub async fn open(config: &Config, reach: &Reach) -> Result<Self> {
        let data = &config.server.data;
        if reach.url.is_none() && !data.join("log").is_dir() {
            return Err(without_log(data));
        }
        Self::open_or_create(config, reach).await
    }

    /// For commands that write: a directory that does not exist is made.
    pub async fn open_or_create(config: &Config, reach: &Reach) -> Result<Self> {
        let data = &config.server.data;
        if let Some(url) = &reach.url {
            let client = Client::new(url, reach.key.clone())?;
            let place = format!("server {url}");
            return Ok(Door { client, control: None, own: None, place });
        }
        let control = Some(Client::socket(data));
        if let Some(running) = Running::find(data) {
            let client = Client::new(&running.url, reach.key.clone().or(Some(running.secret)))?;
            return Ok(Door { client, control, own: None, place: format!("server {}", running.url) });
        }
        let starting = config.clone();
        let started = tokio::task::spawn_blocking(move || Service::start_private(&starting)).await;
        let own =
            started.map_err(|error| Error::internal("opening the directory failed").caused_by(error))??;
        let client = Client::new(&own.url(), reach.key.clone().or(Some(own.secret().to_owned())))?;
        Ok(Door { client, control, own: Some(own), place: format!("directory {}", data.display()) })
    }

    /// Asks, then closes the door whatever came of it.
    pub async fn with<T>(self, ask: impl AsyncFnOnce(&mut Door) -> Result<T>) -> Result<T> {
        let mut door = self;
        let outcome = ask(&mut door).await;
        let closed = door.close().await;
        let answer = outcome?;
        closed.map(|()| answer)
    }

    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    pub fn control(&mut self) -> Option<&mut Client> {
        self.control.as_mut()
    }

    /// For people: what the command talks to.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Closes what was opened. Off this thread: ending the threads of a server blocks.
    async fn close(self) -> Result<()> {
        drop((self.client, self.control));
        let Some(own) = self.own else { return Ok(()) };
        let stopped = tokio::task::spawn_blocking(move || own.stop()).await;
        stopped.map_err(|error| Error::internal("closing the directory failed").caused_by(error))?
    }
}
