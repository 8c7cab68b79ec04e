//! `cargo xtask catalogue`: writes the tables of built-in types and resources that the schema crate
//! reads, from the OpenAPI documents, discovery and protobuf descriptors of a kube-apiserver.
//! Descriptions are left out.

mod descriptors;
mod gated;
mod openapi;
mod presence;
mod resources;
mod supplement;
mod types;
mod unserved;

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the tables.
const OUT: &str = "crates/schema/catalogue";

/// Runs the task with its arguments.
pub fn run(args: &[String]) -> Result<()> {
    let mut reference = PathBuf::from("../shared/reference");
    let mut check = false;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--reference" => {
                reference = args.next().context("--reference needs a folder")?.into();
            }
            "--check" => check = true,
            other => bail!("unknown flag {other:?} of catalogue"),
        }
    }
    for (name, text) in generate(&reference)? {
        let path = Path::new(OUT).join(name);
        if !check {
            fs::create_dir_all(OUT)?;
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        } else if fs::read_to_string(&path).unwrap_or_default() != text {
            bail!("{} is out of date; run `cargo xtask catalogue`", path.display());
        }
    }
    Ok(())
}

/// Returns the file name and text of each table.
fn generate(reference: &Path) -> Result<Vec<(&'static str, String)>> {
    let read = |name: &str| {
        let path = reference.join(name);
        fs::read(&path).with_context(|| format!("read {}", path.display()))
    };
    let descriptors = descriptors::parse(&read("kubernetes-1.36.fds")?)?;
    let mut schemas = types::Schemas::new();
    let mut paths: Vec<PathBuf> = fs::read_dir(reference.join("openapi-v3"))?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<_, _>>()?;
    paths.sort();
    let mut documents = BTreeMap::new();
    for path in paths {
        let document: serde_json::Value = serde_json::from_slice(&fs::read(&path)?)
            .with_context(|| format!("parse {}", path.display()))?;
        types::collect(&document, &mut schemas);
        documents.insert(path.display().to_string(), document);
    }
    let read_own = |name: &str| fs::read_to_string(Path::new(OUT).join(name));
    let gated = gated::Gated::parse(&read_own("gated.json")?).context("gated.json")?;
    for (name, document) in &gated.openapi {
        types::collect(document, &mut schemas);
        documents.insert(name.clone(), document.clone());
    }
    let mut presence = presence::parse(&read_own("presence.txt")?)?;
    let supplement = supplement::parse(&read_own("supplement.txt")?)?;
    let mut all: serde_json::Value =
        serde_json::from_slice(&read("discovery-aggregated-all.json")?)?;
    gated.add_to(&mut all)?;
    let default: serde_json::Value =
        serde_json::from_slice(&read("discovery-aggregated-default.json")?)?;
    let v2: serde_json::Value = serde_json::from_slice(&read("openapi-v2.json")?)?;
    let sources =
        unserved::Sources { served: &schemas, messages: &descriptors, supplement: &supplement };
    let unserved = sources.schemas(&mut presence)?;
    let (undocumented, unserved): (types::Schemas, types::Schemas) =
        unserved.into_iter().partition(|(name, _)| supplement.is_served(name));
    let mut served = schemas.clone();
    served.extend(undocumented);
    let render = |title: &str, schemas: &types::Schemas| {
        types::render(title, schemas, &descriptors, &presence)
    };
    let types = render("Every type that a server speaks", &served)?;
    let mut unserved = render("Types that no document of a server shows", &unserved)?;
    unserved.push_str(&format!("\n{}\n", supplement.blocks));
    let openapi = openapi::render(&types, &schemas, &documents, &v2)?;
    Ok(vec![
        ("types.txt", types),
        ("unserved.txt", unserved),
        ("openapi.txt", openapi),
        ("resources.txt", resources::render(&all, &default, &gated.gates)?),
    ])
}
