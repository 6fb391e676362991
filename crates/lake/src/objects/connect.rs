//! Creates clients for S3 from a URI and the settings.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AwsCredentialProvider, S3ConditionalPut};
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
use types::{Error, Result};

use super::Objects;

/// Settings for the connection to a store. Absent ones come from the environment, as in AWS's own programs (`AWS_…`).
#[derive(Clone, Default)]
pub struct Options {
    /// The address of a compatible store, such as `http://127.0.0.1:7070`; Amazon's own by default.
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub access_key: Option<String>,
    pub secret_key: Option<String>,
    pub session_token: Option<String>,
    /// True if the bucket is part of the host name instead of the beginning of the path.
    pub virtual_hosted: bool,
    /// Time limit of every call, including its retries.
    pub call_max: Option<Duration>,
}

impl std::fmt::Debug for Options {
    /// Shows no secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .field("access_key", &self.access_key)
            .finish_non_exhaustive()
    }
}

/// Settings for the connection that a credential vendor tells with its credentials. The server's own settings override them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreEndpoint {
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub virtual_hosted: bool,
}

/// Creates clients of a store for credentials that are handed out.
pub(crate) trait Connector: Send + Sync {
    fn connect(
        &self,
        endpoint: &StoreEndpoint,
        credentials: AwsCredentialProvider,
    ) -> Result<Arc<dyn ObjectStore>>;
}

/// Default time limit of a call. A background thread waits meanwhile.
const CALL_MAX: Duration = Duration::from_secs(30);
const CONNECT_MAX: Duration = Duration::from_secs(5);
const RETRIES_MAX: usize = 3;

/// Splits `s3://bucket/prefix` into bucket and prefix.
fn parts(uri: &str) -> Result<(&str, &str)> {
    let wrong = |what: &str| {
        Error::invalid(format!("`{uri}` {what}"))
            .hint("write s3://BUCKET/PREFIX, or a folder of this machine")
    };
    let rest = uri.strip_prefix("s3://").or_else(|| uri.strip_prefix("s3a://"));
    let rest = rest.ok_or_else(|| wrong("has an unknown scheme"))?;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() || bucket.contains(['@', '?', '#', ':']) {
        return Err(wrong("names no bucket"));
    }
    Ok((bucket, prefix.trim_matches('/')))
}

impl Objects {
    /// Opens a place at `s3://bucket/prefix`. Sends no request; the first one is made by [`Objects::ensure_usable`].
    pub fn connect(uri: &str, options: &Options, owner: &str) -> Result<Objects> {
        let (bucket, prefix) = parts(uri)?;
        let client = client(bucket, options, None).map_err(|e| {
            e.hint("see the settings lake.s3_endpoint and lake.s3_region, and AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
        })?;
        Objects::new(client, prefix, named(bucket, prefix), options.call_max.unwrap_or(CALL_MAX), owner)
    }

    /// Opens a place without a key: a catalog hands out credentials for each table.
    pub fn without_key(uri: &str, options: &Options, owner: &str) -> Result<Objects> {
        let (bucket, prefix) = parts(uri)?;
        let s3 = S3 { bucket: bucket.to_owned(), options: options.clone() };
        let call_max = options.call_max.unwrap_or(CALL_MAX);
        Objects::with_connector(Arc::new(s3), prefix, named(bucket, prefix), call_max, owner)
    }
}

fn named(bucket: &str, prefix: &str) -> String {
    match prefix {
        "" => format!("s3://{bucket}"),
        prefix => format!("s3://{bucket}/{prefix}"),
    }
}

struct S3 {
    bucket: String,
    options: Options,
}

impl Connector for S3 {
    fn connect(
        &self,
        endpoint: &StoreEndpoint,
        credentials: AwsCredentialProvider,
    ) -> Result<Arc<dyn ObjectStore>> {
        client(&self.bucket, &self.options.completed_by(endpoint, &self.bucket), Some(credentials))
            .map_err(|e| e.hint("see the settings lake.s3_endpoint and lake.s3_region, and what the catalog says of its store"))
    }
}

impl Options {
    /// Returns these options, completed with the settings that a vendor tells.
    fn completed_by(&self, vendor: &StoreEndpoint, bucket: &str) -> Options {
        let mut all = self.clone();
        all.region = all.region.or_else(|| vendor.region.clone());
        if all.endpoint.is_none() {
            all.virtual_hosted |= vendor.virtual_hosted;
            // The client uses an endpoint unchanged, so that the bucket is added to the host here.
            let hosted = |endpoint: &String| match endpoint.split_once("://") {
                Some((scheme, host)) if all.virtual_hosted => format!("{scheme}://{bucket}.{host}"),
                _ => endpoint.clone(),
            };
            all.endpoint = vendor.endpoint.as_ref().map(hosted);
        }
        all
    }
}

/// Creates a client with `credentials`, or else with those of the options or the environment.
fn client(
    bucket: &str,
    options: &Options,
    credentials: Option<AwsCredentialProvider>,
) -> Result<Arc<dyn ObjectStore>> {
    let call_max = options.call_max.unwrap_or(CALL_MAX);
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_virtual_hosted_style_request(options.virtual_hosted)
        .with_client_options(
            ClientOptions::new()
                .with_allow_http(true)
                .with_connect_timeout(CONNECT_MAX.min(call_max))
                .with_timeout(call_max),
        )
        .with_retry(RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(50),
                max_backoff: Duration::from_secs(2),
                base: 2.0,
            },
            max_retries: RETRIES_MAX,
            retry_timeout: call_max,
        });
    let given = [
        (&options.endpoint, AmazonS3Builder::with_endpoint as fn(AmazonS3Builder, String) -> AmazonS3Builder),
        (&options.region, AmazonS3Builder::with_region),
        (&options.access_key, AmazonS3Builder::with_access_key_id),
        (&options.secret_key, AmazonS3Builder::with_secret_access_key),
        (&options.session_token, AmazonS3Builder::with_token),
    ];
    for (value, set) in given {
        if let Some(value) = value {
            builder = set(builder, value.clone());
        }
    }
    if let Some(credentials) = credentials {
        builder = builder.with_credentials(credentials);
    }
    let client = builder.build();
    let client =
        client.map_err(|e| Error::invalid(format!("the bucket `{bucket}` cannot be connected to: {e}")))?;
    Ok(Arc::new(client))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warehouse_is_named_by_bucket_and_prefix() {
        assert_eq!(parts("s3://b/p/q/").unwrap(), ("b", "p/q"));
        assert_eq!(parts("s3://b").unwrap(), ("b", ""));
        assert_eq!(parts("s3a://b/").unwrap(), ("b", ""));
        for wrong in ["", "gs://b/p", "s3:///p", "s3://", "s3://user@host/p", "/tmp"] {
            assert!(parts(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn own_settings_override_those_of_a_catalog() {
        let vendor = StoreEndpoint {
            endpoint: Some("https://there:9000".into()),
            region: Some("north".into()),
            virtual_hosted: true,
        };
        let all = Options::default().completed_by(&vendor, "b");
        assert_eq!(
            (all.endpoint.as_deref(), all.region.as_deref()),
            (Some("https://b.there:9000"), Some("north"))
        );
        assert!(all.virtual_hosted);
        let path =
            Options::default().completed_by(&StoreEndpoint { virtual_hosted: false, ..vendor.clone() }, "b");
        assert_eq!((path.endpoint.as_deref(), path.virtual_hosted), (Some("https://there:9000"), false));
        let own = Options {
            endpoint: Some("http://here".into()),
            region: Some("south".into()),
            ..Options::default()
        };
        let all = own.completed_by(&vendor, "b");
        assert_eq!((all.endpoint.as_deref(), all.region.as_deref()), (Some("http://here"), Some("south")));
        assert!(!all.virtual_hosted, "how a bucket is named goes with the endpoint");
    }

    #[test]
    fn secrets_are_not_shown() {
        let options = Options {
            secret_key: Some("hush".into()),
            session_token: Some("token".into()),
            ..Options::default()
        };
        let shown = format!("{options:?}");
        assert!(!shown.contains("hush") && !shown.contains("token"), "{shown}");
    }
}
