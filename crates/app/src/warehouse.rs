//! A warehouse in an object store, and a catalog elsewhere: connected to by what the settings say.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;

use lake::Store;
use lake::objects::{Objects, Options};
use lake::rest::Catalog;
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
    let (asked, of) = (objects.clone(), env.clone());
    wait_for(uri, move || asked.make_sure(&of))?;
    Ok(Some(objects))
}

/// The catalog elsewhere that has the tables, if there is one. Refused if there is none at its address, or it does not know
/// us; one that is away is asked again before anything is committed.
pub fn catalog(config: &Config, env: &Env) -> Result<Option<Catalog>> {
    let lake = &config.lake;
    if lake.catalog.is_empty() {
        let others = [
            ("lake.catalog_warehouse", &lake.catalog_warehouse),
            ("lake.catalog_token", &lake.catalog_token.0),
            ("lake.catalog_credential", &lake.catalog_credential.0),
            ("lake.catalog_oauth2_uri", &lake.catalog_oauth2_uri),
        ];
        return match others.iter().find(|(_, value)| !value.is_empty()) {
            None => Ok(None),
            Some((setting, _)) => Err(Error::invalid(format!("{setting} is set, and lake.catalog is not"))
                .hint("set lake.catalog to the catalog's address before /v1")),
        };
    }
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let options = lake::rest::Options {
        uri: lake.catalog.clone(),
        warehouse: given(&lake.catalog_warehouse),
        token: given(&lake.catalog_token.0),
        credential: given(&lake.catalog_credential.0),
        scope: given(&lake.catalog_scope),
        oauth2_uri: given(&lake.catalog_oauth2_uri),
        call_max: None,
    };
    let catalog = Catalog::connect(&options, &lake::database_id(env, &config.server.data)?)?;
    let asked = catalog.clone();
    wait_for(catalog.uri(), move || asked.make_sure())?;
    Ok(Some(catalog))
}

/// Asks something elsewhere and waits a while for it. What is merely away is a warning.
fn wait_for(uri: &str, ask: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    let (sender, receiver) = mpsc::channel();
    std::thread::Builder::new()
        .name("pn-warehouse".into())
        // Nobody listens any more if it took too long.
        .spawn(move || drop(sender.send(ask())))
        .map_err(|e| Error::io("starting a thread", e))?;
    match receiver.recv_timeout(START_PATIENCE) {
        Ok(Err(error)) if !matches!(error.kind(), Kind::Io | Kind::Busy) => return Err(error),
        Ok(Err(error)) => tracing::warn!("{error}; nothing lands until it answers"),
        Ok(Ok(())) => {}
        Err(_) => tracing::warn!("{uri} does not answer; nothing lands until it does"),
    }
    Ok(())
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
