//! Connects to the lake's warehouse in an object store, and to an external Iceberg catalog, as the settings say.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;

use lake::Store;
use lake::objects::{self, Objects, Options};
use lake::reader::Reader;
use lake::rest::Catalog;
use types::{Error, Kind, Result};
use vfs::Env;

use crate::config::{Config, Credentials};

/// Time that the start waits for a store or a catalog. If it does not answer by then, the check is repeated before the first
/// commit.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// Environment variables of which one provides the credentials for S3.
const KEYS: [&str; 5] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
];

/// Returns true if the catalog hands out the credentials for the warehouse. `has` tells whether an environment variable is
/// set. Fails with `invalid` if the settings demand the catalog's credentials and there is no catalog or no warehouse.
fn is_vended(config: &Config, has: impl Fn(&str) -> bool) -> Result<bool> {
    let lake = &config.lake;
    let can = !lake.warehouse.is_empty() && !lake.catalog.is_empty();
    match lake.s3_credentials {
        Credentials::Own => Ok(false),
        Credentials::Auto => Ok(can && !KEYS.into_iter().any(has)),
        Credentials::Catalog if can => Ok(true),
        Credentials::Catalog => Err(Error::invalid(
            "lake.s3_credentials is `catalog`, and there is no catalog that could hand out credentials for a warehouse",
        )
        .hint("set lake.catalog, and lake.warehouse to s3://BUCKET/PREFIX")),
    }
}

fn has_variable(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

/// Connects to the warehouse; `None` if it is in the data directory. Fails if commits would not be safe in that store. If a
/// catalog hands out the credentials, that check comes with the first table.
pub fn connect(config: &Config, env: &Env) -> Result<Option<Objects>> {
    let uri = config.lake.warehouse.as_str();
    let is_vended = is_vended(config, has_variable)?;
    if uri.is_empty() {
        return Ok(None);
    }
    let owner = lake::database_id(env, &config.server.data)?;
    if is_vended {
        return Objects::without_key(uri, &options(config), &owner).map(Some);
    }
    let objects = Objects::connect(uri, &options(config), &owner)?.remembered_in(&config.server.data);
    let (asked, of) = (objects.clone(), env.clone());
    // A role's credentials are renewed automatically. A key in the environment must be replaced by its owner.
    let is_given = has_variable("AWS_ACCESS_KEY_ID");
    let is_away = move |error: &Error| is_away(error, is_given);
    wait_for(uri, is_away, move || asked.ensure_usable(&of))?;
    Ok(Some(objects))
}

/// Returns true if a store may answer later without any change of the settings, so that the server may start. `is_given`
/// is true if the credentials are a fixed key in the environment, which does not recover once it has expired.
fn is_away(error: &Error, is_given: bool) -> bool {
    let passes = !objects::is_refused(error) || objects::is_ended(error) && !is_given;
    matches!(error.kind(), Kind::Io | Kind::Busy) && passes
}

/// Connects to the external catalog; `None` if the settings name none. Fails if no catalog is at its address, or if it
/// refuses the credentials. If it does not answer, the check is repeated before the first commit.
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
    let catalog = Catalog::connect(&catalog_options(config), &lake::database_id(env, &config.server.data)?)?;
    let asked = catalog.clone();
    let is_away = |error: &Error| matches!(error.kind(), Kind::Io | Kind::Busy);
    wait_for(catalog.uri(), is_away, move || asked.ensure_usable())?;
    Ok(Some(catalog))
}

fn catalog_options(config: &Config) -> lake::rest::Options {
    let lake = &config.lake;
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    lake::rest::Options {
        uri: lake.catalog.clone(),
        warehouse: given(&lake.catalog_warehouse),
        token: given(&lake.catalog_token.0),
        credential: given(&lake.catalog_credential.0),
        scope: given(&lake.catalog_scope),
        oauth2_uri: given(&lake.catalog_oauth2_uri),
        call_max: None,
    }
}

/// Opens a table of the external catalog with the credentials that the catalog hands out for it. Returns `None` if the
/// environment has a key for the table's files.
pub fn open_in_catalog(config: &Config, full_name: &str) -> Result<Option<Reader>> {
    if !is_vended(config, has_variable)? {
        return Ok(None);
    }
    let objects = Objects::without_key(&config.lake.warehouse, &options(config), "")?;
    Catalog::connect(&catalog_options(config), "")?.open(objects, full_name).map(Some)
}

/// Runs the check `ask` of a store or a catalog, and waits for it up to [`START_PATIENCE`]. If `is_away` returns true for
/// its error, or if the time is over, that is only a warning.
fn wait_for(
    uri: &str,
    is_away: impl Fn(&Error) -> bool,
    ask: impl FnOnce() -> Result<()> + Send + 'static,
) -> Result<()> {
    let (sender, receiver) = mpsc::channel();
    std::thread::Builder::new()
        .name("pn-warehouse".into())
        // The send fails if the receiver has stopped waiting.
        .spawn(move || drop(sender.send(ask())))
        .map_err(|e| Error::io("starting a thread", e))?;
    match receiver.recv_timeout(START_PATIENCE) {
        Ok(Err(error)) if !is_away(&error) => return Err(error),
        Ok(Err(error)) => match error.hint_text() {
            None => tracing::warn!("{error}; nothing lands until it answers otherwise"),
            Some(hint) => tracing::warn!("{error}; nothing lands until it answers otherwise: {hint}"),
        },
        Ok(Ok(())) => {}
        Err(_) => tracing::warn!("{uri} does not answer; nothing lands until it does"),
    }
    Ok(())
}

/// Opens the store of one table for reading. The table's files are below the empty path.
pub fn open_store(config: &Config, table_uri: &str) -> Result<Store> {
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

/// Returns the properties with which clients of this server's catalog reach the files: endpoint and region. Each client
/// needs a key of its own.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

    #[test]
    fn a_store_that_refuses_ends_the_start_and_one_that_is_away_does_not() {
        use std::io::ErrorKind;
        let _limit = testkit::limit(60);
        let starts = |kind, text: &str, is_given| {
            let error = Error::io("writing s3://b/p/x", std::io::Error::new(kind, text.to_owned()));
            wait_for("s3://b/p", |error| is_away(error, is_given), || Err(error)).is_ok()
        };
        for kind in [ErrorKind::PermissionDenied, ErrorKind::InvalidInput, ErrorKind::Unsupported] {
            assert!(!starts(kind, "so", true) && !starts(kind, "so", false), "{kind}");
        }
        for kind in [ErrorKind::TimedOut, ErrorKind::Other] {
            assert!(starts(kind, "so", true) && starts(kind, "so", false), "{kind}");
        }
        let ended = "<Code>ExpiredToken</Code>";
        assert!(!starts(ErrorKind::PermissionDenied, ended, true));
        assert!(starts(ErrorKind::PermissionDenied, ended, false));
        assert!(wait_for("s3://b/p", |_| true, || Ok(())).is_ok());
    }

    #[test]
    fn a_key_of_the_environment_wins_over_credentials_of_the_catalog() {
        let config = |flags: &[(&str, &str)]| {
            let flag = |(path, value): &(&str, &str)| ((*path).into(), (*value).into(), "--set".into());
            Config::load(&Sources { flags: flags.iter().map(flag).collect(), ..Sources::default() }).unwrap()
        };
        let both = [("lake.warehouse", "s3://b/p"), ("lake.catalog", "http://c")];
        let with = |credentials| config(&[both[0], both[1], ("lake.s3_credentials", credentials)]);
        let (none, key) = (|_: &str| false, |name: &str| name == "AWS_ACCESS_KEY_ID");
        let role = |name: &str| name == "AWS_WEB_IDENTITY_TOKEN_FILE";
        assert!(is_vended(&config(&both), none).unwrap());
        assert!(!is_vended(&config(&both), key).unwrap() && !is_vended(&config(&both), role).unwrap());
        assert!(is_vended(&with("catalog"), key).unwrap());
        assert!(!is_vended(&with("own"), none).unwrap());
        // Files of this machine need no credentials, and without a catalog there is nobody to hand them out.
        assert!(
            !is_vended(&config(&both[..1]), none).unwrap() && !is_vended(&config(&both[1..]), none).unwrap()
        );
        let error = is_vended(&config(&[both[0], ("lake.s3_credentials", "catalog")]), none).unwrap_err();
        assert!(error.to_string().contains("set lake.catalog"), "{error}");
    }
}
