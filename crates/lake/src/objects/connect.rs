//! Connecting to S3, by what a URI and the settings say.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use types::{Error, Result};

use super::Objects;

/// How a store is reached. What is absent is taken from the environment, as AWS's own programs take it (`AWS_…`).
#[derive(Clone, Default)]
pub struct Options {
    /// Of a compatible store, `http://127.0.0.1:7070`; none is Amazon's own.
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub access_key: Option<String>,
    pub secret_key: Option<String>,
    pub session_token: Option<String>,
    /// The bucket is part of the host's name instead of the path's beginning.
    pub virtual_hosted: bool,
    /// Every call ends within this, its repetitions included.
    pub call_max: Option<Duration>,
}

impl std::fmt::Debug for Options {
    /// Without secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .field("access_key", &self.access_key)
            .finish_non_exhaustive()
    }
}

/// So long may a store take for one call: a background thread waits meanwhile.
const CALL_MAX: Duration = Duration::from_secs(30);
const CONNECT_MAX: Duration = Duration::from_secs(5);
const RETRIES_MAX: usize = 3;

/// `s3://bucket/prefix`, as bucket and prefix.
fn parts(uri: &str) -> Result<(&str, &str)> {
    let wrong = |what: &str| {
        Error::invalid(format!("`{uri}` {what}"))
            .hint("write s3://BUCKET/PREFIX, or a folder of this machine")
    };
    let rest = uri.strip_prefix("s3://").or_else(|| uri.strip_prefix("s3a://"));
    let rest = rest.ok_or_else(|| wrong("is of no known kind"))?;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() || bucket.contains(['@', '?', '#', ':']) {
        return Err(wrong("names no bucket"));
    }
    Ok((bucket, prefix.trim_matches('/')))
}

impl Objects {
    /// A place at `s3://bucket/prefix`. Nothing is asked of the store yet: [`Objects::make_sure`] does.
    pub fn connect(uri: &str, options: &Options, owner: &str) -> Result<Objects> {
        let (bucket, prefix) = parts(uri)?;
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
            (
                &options.endpoint,
                AmazonS3Builder::with_endpoint as fn(AmazonS3Builder, String) -> AmazonS3Builder,
            ),
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
        let client = builder.build().map_err(|e| {
            Error::invalid(format!("`{uri}` cannot be connected to: {e}"))
                .hint("see the settings lake.s3_endpoint and lake.s3_region, and AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
        })?;
        let uri = match prefix {
            "" => format!("s3://{bucket}"),
            prefix => format!("s3://{bucket}/{prefix}"),
        };
        Objects::new(Arc::new(client), prefix, uri, call_max, owner)
    }
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
