//! A warehouse in an object store: connected to by what the settings say.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;

use lake::Store;
use lake::objects::{Objects, Options};
use types::{Error, Kind, Result};
use vfs::Env;

use crate::config::Config;

/// So long is a store waited for at the start. One that does not answer by then is asked again before anything is committed.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// The warehouse, if it is not in the data directory. Refused if commits would not be safe there.
pub fn connect(config: &Config, env: &Env) -> Result<Option<Objects>> {
    let uri = config.lake.warehouse.as_str();
    if uri.is_empty() {
        return Ok(None);
    }
    let owner = lake::database_id(env, &config.server.data)?;
    let objects = Objects::connect(uri, &options(config), &owner)?;
    let (sender, receiver) = mpsc::channel();
    let (asked, of) = (objects.clone(), env.clone());
    std::thread::Builder::new()
        .name("pn-warehouse".into())
        // Nobody listens any more if it took too long.
        .spawn(move || drop(sender.send(asked.make_sure(&of))))
        .map_err(|e| Error::io("starting a thread", e))?;
    match receiver.recv_timeout(START_PATIENCE) {
        Ok(Err(error)) if error.kind() != Kind::Io => return Err(error),
        Ok(Err(error)) => tracing::warn!("{error}; nothing lands until the warehouse answers"),
        Ok(Ok(())) => {}
        Err(_) => tracing::warn!("{uri} does not answer; nothing lands until it does"),
    }
    Ok(Some(objects))
}

/// A table of a warehouse, to be read. Its files are below the empty path.
pub fn to_read(config: &Config, table_uri: &str) -> Result<Store> {
    let objects = Objects::connect(table_uri, &options(config), "")?;
    Ok(Store::new(Env::real(), Some(objects)))
}

fn options(config: &Config) -> Options {
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    Options {
        endpoint: given(&config.lake.s3_endpoint),
        region: given(&config.lake.s3_region),
        ..Options::default()
    }
}

/// How clients of the catalog reach the files. Each needs a key of its own.
pub fn catalog_defaults(config: &Config) -> BTreeMap<String, String> {
    let mut defaults = BTreeMap::new();
    if config.lake.warehouse.is_empty() {
        return defaults;
    }
    if !config.lake.s3_endpoint.is_empty() {
        defaults.insert("s3.endpoint".to_owned(), config.lake.s3_endpoint.clone());
        defaults.insert("s3.path-style-access".to_owned(), "true".to_owned());
    }
    if !config.lake.s3_region.is_empty() {
        defaults.insert("s3.region".to_owned(), config.lake.s3_region.clone());
        defaults.insert("client.region".to_owned(), config.lake.s3_region.clone());
    }
    defaults
}
