//! Plans as JSON, for the journal and the redo entry. A permanent format: readers of version 1 must read it for ever.
//!
//! `{"version":1,"operation":"rewind","steps":[{"path":"a","from":NODE,"to":NODE,"extra":true,"edited_since":true}],
//! "kept":[{"path","reason"}],"not_covered":[{"path","reason"}]}`. An absent `from` or `to` is nothing, an absent `extra`
//! or `edited_since` is false. NODE is `{"type":"file"|"link"|"dir"|"fifo","id":"<40 hex>","perm":"0644",
//! "attributes":{"user.x":"<hex>"}}`; `id` only of files and links, `attributes` only where there are any. Paths and
//! attribute names are escaped as [`TreePath`] says.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::journal::OperationKind;
use super::step::{Kept, NotCovered, Plan, Step};
use crate::node::{Kind, Node, Perm};
use crate::oid::Oid;
use crate::path::{escape, unescape};

const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct PlanRecord<'a> {
    version: u32,
    operation: OperationKind,
    steps: std::borrow::Cow<'a, [Step]>,
    kept: std::borrow::Cow<'a, [Kept]>,
    not_covered: std::borrow::Cow<'a, [NotCovered]>,
}

/// A plan as JSON.
///
/// # Errors
/// None in practice: a plan holds nothing that JSON can't.
pub fn encode_plan(plan: &Plan) -> serde_json::Result<serde_json::Value> {
    serde_json::to_value(PlanRecord::of(plan))
}

/// The plan that [`encode_plan`] was given.
///
/// # Errors
/// When it isn't one, or is of a later version.
pub fn decode_plan(value: serde_json::Value) -> serde_json::Result<Plan> {
    serde_json::from_value::<PlanRecord<'_>>(value)?.into_plan()
}

impl<'a> PlanRecord<'a> {
    fn of(plan: &'a Plan) -> Self {
        Self {
            version: VERSION,
            operation: plan.operation,
            steps: (&plan.steps).into(),
            kept: (&plan.kept).into(),
            not_covered: (&plan.not_covered).into(),
        }
    }

    fn into_plan(self) -> serde_json::Result<Plan> {
        if self.version != VERSION {
            return Err(serde::de::Error::custom(format!(
                "a plan of version {}, not {VERSION}",
                self.version
            )));
        }
        Ok(Plan {
            operation: self.operation,
            steps: self.steps.into_owned(),
            kept: self.kept.into_owned(),
            not_covered: self.not_covered.into_owned(),
        })
    }
}

/// For a field of a journal.
pub(super) mod plan {
    use super::{Plan, PlanRecord};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(in crate::restore) fn serialize<S: Serializer>(
        plan: &Plan,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        PlanRecord::of(plan).serialize(serializer)
    }

    pub(in crate::restore) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Plan, D::Error> {
        PlanRecord::deserialize(deserializer)?
            .into_plan()
            .map_err(serde::de::Error::custom)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Type {
    File,
    Link,
    Dir,
    Fifo,
}

#[derive(Serialize, Deserialize)]
struct NodeRecord {
    r#type: Type,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<Oid>,
    perm: Perm,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<String, String>,
}

impl NodeRecord {
    fn of(node: &Node) -> Self {
        let (r#type, id) = match node.kind {
            Kind::File(oid) => (Type::File, Some(oid)),
            Kind::Link(oid) => (Type::Link, Some(oid)),
            Kind::Dir => (Type::Dir, None),
            Kind::Fifo => (Type::Fifo, None),
        };
        let attributes = node.attributes.iter().flat_map(|attributes| attributes.iter());
        let attributes = attributes
            .map(|(name, value)| (escape(name), hex(value)))
            .collect();
        Self {
            r#type,
            id,
            perm: node.perm,
            attributes,
        }
    }

    fn into_node(self) -> Result<Node, &'static str> {
        let kind = match (self.r#type, self.id) {
            (Type::File, Some(oid)) => Kind::File(oid),
            (Type::Link, Some(oid)) => Kind::Link(oid),
            (Type::Dir, None) => Kind::Dir,
            (Type::Fifo, None) => Kind::Fifo,
            _ => return Err("an id where none belongs, or none where one belongs"),
        };
        let mut attributes = BTreeMap::new();
        for (name, value) in self.attributes {
            let name = unescape(&name).ok_or("a bad name of an attribute")?;
            attributes.insert(name, unhex(&value).ok_or("a bad value of an attribute")?);
        }
        let attributes = (!attributes.is_empty()).then(|| Arc::new(attributes));
        Ok(Node {
            kind,
            perm: self.perm,
            attributes,
        })
    }
}

/// For a field that is a version or nothing.
pub(super) mod optional_node {
    use super::{Node, NodeRecord};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(in crate::restore) fn serialize<S: Serializer>(
        node: &Option<Node>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        node.as_ref().map(NodeRecord::of).serialize(serializer)
    }

    pub(in crate::restore) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Node>, D::Error> {
        let record = Option::<NodeRecord>::deserialize(deserializer)?;
        record
            .map(NodeRecord::into_node)
            .transpose()
            .map_err(serde::de::Error::custom)
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    (0..digits.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::TreePath;

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        let attributes = BTreeMap::from([(b"user.\xff".to_vec(), vec![0, 255])]);
        let file = Node {
            kind: Kind::File(Oid::EMPTY_TREE),
            perm: Perm::of_mode(0o4755),
            attributes: Some(Arc::new(attributes)),
        };
        let step = |path: &[u8], from, to| Step {
            path: TreePath::new(path).unwrap(),
            from,
            to,
            extra: true,
            edited_since: false,
        };
        let plan = Plan {
            operation: OperationKind::Redo,
            steps: vec![
                step(b"", Some(Node::plain(Kind::Dir, Perm::of_mode(0o755))), None),
                step(b"a\xff", None, Some(file)),
                step(b"b", Some(Node::plain(Kind::Fifo, Perm::of_mode(0o600))), None),
            ],
            kept: vec![Kept {
                path: TreePath::new(b"k").unwrap(),
                reason: "why".into(),
            }],
            not_covered: Vec::new(),
        };
        let read = decode_plan(encode_plan(&plan).unwrap()).unwrap();
        assert_eq!(read, plan);
        assert_eq!(read.id(), plan.id());
    }

    #[test]
    fn the_format_is_the_one_promised() {
        let plan = Plan {
            operation: OperationKind::Rewind,
            steps: vec![Step {
                path: TreePath::new(b"a").unwrap(),
                from: None,
                to: Some(Node::plain(Kind::Link(Oid::EMPTY_TREE), Perm::of_mode(0o777))),
                extra: false,
                edited_since: false,
            }],
            kept: Vec::new(),
            not_covered: Vec::new(),
        };
        assert_eq!(
            serde_json::to_string(&PlanRecord::of(&plan)).unwrap(),
            r#"{"version":1,"operation":"rewind","steps":[{"path":"a","to":{"type":"link","id":"4b825dc642cb6eb9a060e54bf8d69288fbee4904","perm":"0777"}}],"kept":[],"not_covered":[]}"#
        );
    }

    #[test]
    fn a_later_version_is_refused() {
        let value =
            serde_json::json!({"version":2,"operation":"rewind","steps":[],"kept":[],"not_covered":[]});
        assert!(decode_plan(value).is_err());
    }
}
