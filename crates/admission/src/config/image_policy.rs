//! [`ImagePolicyConfig`]: the configuration of ImagePolicyWebhook.

use super::{check_fields, read_kubeconfig, text};
use keelson_egress::kubeconfig::Server;
use keelson_meta::Value;
use std::fmt;
use std::time::Duration;

const TTL_MAX: Duration = Duration::from_secs(30 * 60);
const BACKOFF_MAX: Duration = Duration::from_secs(5 * 60);

/// The configuration of ImagePolicyWebhook.
#[derive(Clone)]
pub struct ImagePolicyConfig {
    pub(crate) server: Server,
    pub(crate) allow_ttl: Duration,
    pub(crate) deny_ttl: Duration,
    pub(crate) backoff: Duration,
    pub(crate) default_allow: bool,
}

/// Omits the credentials.
impl fmt::Debug for ImagePolicyConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImagePolicyConfig").field("url", &self.server.url).finish_non_exhaustive()
    }
}

impl ImagePolicyConfig {
    pub(super) fn read(own: &Value) -> Result<ImagePolicyConfig, String> {
        check_fields(own, &["imagePolicy"])?;
        let own = own.get("imagePolicy").ok_or("imagePolicy is missing")?;
        let fields = ["kubeConfigFile", "allowTTL", "denyTTL", "retryBackoff", "defaultAllow"];
        check_fields(own, &fields)?;
        let default_allow = match own.get("defaultAllow") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(allow)) => *allow,
            Some(_) => return Err("defaultAllow: must be true or false".to_owned()),
        };
        let seconds = Duration::from_secs;
        let ttl = |name, default| duration(own, name, seconds, seconds(1), TTL_MAX, default);
        let allow_ttl = ttl("allowTTL", 300)?;
        let deny_ttl = ttl("denyTTL", 30)?;
        let nanosecond = Duration::from_nanos(1);
        let milliseconds = Duration::from_millis;
        let backoff = duration(own, "retryBackoff", milliseconds, nanosecond, BACKOFF_MAX, 500)?;
        let file = text(own, "kubeConfigFile");
        let (kubeconfig, folder) = read_kubeconfig(file)?;
        let server = Server::read(&kubeconfig, folder).map_err(|why| format!("{file}: {why}"))?;
        Ok(ImagePolicyConfig { server, allow_ttl, deny_ttl, backoff, default_allow })
    }
}

/// Returns a number of units as a duration; 0 is the default, -1 no time at all.
fn duration(
    own: &Value,
    name: &str,
    unit: fn(u64) -> Duration,
    min: Duration,
    max: Duration,
    default: u64,
) -> Result<Duration, String> {
    let number = match own.get(name) {
        None | Some(Value::Null) => 0,
        Some(number) => number.as_int().ok_or_else(|| format!("{name}: must be a number"))?,
    };
    let given = match u64::try_from(number) {
        Ok(0) => return Ok(unit(default)),
        Ok(number) => unit(number),
        Err(_) if number == -1 => return Ok(Duration::ZERO),
        Err(_) => Duration::ZERO,
    };
    if given < min || given > max {
        return Err(format!("{name}: must be between {min:?} and {max:?}, -1 or 0, not {number}"));
    }
    Ok(given)
}
