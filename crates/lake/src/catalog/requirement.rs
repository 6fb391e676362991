//! Checks what a commit requires of the current table or view. The messages use the wording that Iceberg's clients look for.

use serde_json::Value as Json;
use types::{Error, Result, name};

use super::table::{TableMetadata, snapshot_id};

/// The requirement that the table does not exist yet.
const CREATE: &str = "assert-create";

/// Returns true if a commit creates its table. Fails if it also requires anything else, which cannot hold for a table that does
/// not exist.
pub fn is_create(requirements: &[Json]) -> Result<bool> {
    let creates = requirements.iter().any(|one| one["type"] == CREATE);
    if creates && let Some(other) = requirements.iter().find(|one| one["type"] != CREATE) {
        let other = other["type"].as_str().unwrap_or_default();
        return Err(Error::invalid(format!(
            "`{}` cannot be required of a table that the commit creates",
            name::printable(other)
        )));
    }
    Ok(creates)
}

/// Fails with [`types::Kind::Conflict`] at the first requirement that does not hold, and with [`types::Kind::Invalid`] at an
/// unknown one.
pub fn check(requirements: &[Json], table: &TableMetadata) -> Result<()> {
    requirements.iter().try_for_each(|requirement| check_one(requirement, table))
}

fn check_one(requirement: &Json, table: &TableMetadata) -> Result<()> {
    let kind = requirement["type"].as_str().unwrap_or_default();
    let number = |key: &str| {
        requirement[key]
            .as_i64()
            .ok_or_else(|| Error::invalid(format!("the requirement `{kind}` has no number `{key}`")))
    };
    let same = |what: &str, key: &str, found: i64| match number(key)? {
        wanted if wanted == found => Ok(()),
        wanted => Err(failed(format!("{what} changed: expected id {wanted} != {found}"))),
    };
    match kind {
        CREATE => Err(failed("table already exists".into())),
        "assert-table-uuid" => check_uuid(requirement, "UUID", &table.table_uuid),
        "assert-ref-snapshot-id" => check_ref(requirement, table),
        "assert-last-assigned-field-id" => {
            same("last assigned field id", "last-assigned-field-id", table.last_column_id)
        }
        "assert-current-schema-id" => same("current schema", "current-schema-id", table.current_schema_id),
        "assert-last-assigned-partition-id" => {
            same("last assigned partition id", "last-assigned-partition-id", table.last_partition_id)
        }
        "assert-default-spec-id" => same("default partition spec", "default-spec-id", table.default_spec_id),
        "assert-default-sort-order-id" => {
            same("default sort order", "default-sort-order-id", table.default_sort_order_id)
        }
        other => Err(unknown(other)),
    }
}

fn check_ref(requirement: &Json, table: &TableMetadata) -> Result<()> {
    let called = requirement["ref"].as_str();
    let called =
        called.ok_or_else(|| Error::invalid("the requirement `assert-ref-snapshot-id` has no text `ref`"))?;
    let shown = name::printable(called);
    let wanted = requirement["snapshot-id"].as_i64();
    match (table.refs.get(called), wanted) {
        (None, None) => Ok(()),
        (None, Some(wanted)) => Err(failed(format!("branch or tag {shown} is missing, expected {wanted}"))),
        (Some(found), wanted) => {
            let kind = found["type"].as_str().unwrap_or("branch");
            match (wanted, snapshot_id(found)) {
                (None, _) => Err(failed(format!("{kind} {shown} was created concurrently"))),
                (Some(wanted), found) if wanted == found => Ok(()),
                (Some(wanted), found) => {
                    Err(failed(format!("{kind} {shown} has changed: expected id {wanted} != {found}")))
                }
            }
        }
    }
}

/// Checks the requirements on a view. The only one that exists is `assert-view-uuid`.
pub fn check_view(requirements: &[Json], uuid: &str) -> Result<()> {
    requirements.iter().try_for_each(|requirement| match requirement["type"].as_str().unwrap_or_default() {
        "assert-view-uuid" => check_uuid(requirement, "view UUID", uuid),
        other => Err(unknown(other)),
    })
}

fn check_uuid(requirement: &Json, what: &str, found: &str) -> Result<()> {
    let wanted =
        requirement["uuid"].as_str().ok_or_else(|| Error::invalid("the requirement has no text `uuid`"))?;
    if wanted.eq_ignore_ascii_case(found) {
        Ok(())
    } else {
        Err(failed(format!("{what} does not match: expected {found} != {}", name::printable(wanted))))
    }
}

fn failed(why: String) -> Error {
    Error::conflict(format!("Requirement failed: {why}"))
}

fn unknown(kind: &str) -> Error {
    Error::invalid(format!("`{}` is not a requirement", name::printable(kind)))
}
