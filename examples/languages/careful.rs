use std::fs::{self, File};
use std::io::Write;

fn save(settings: &str) -> std::io::Result<()> {
    let mut file = File::create("cfg.json.new")?;
    file.write_all(settings.as_bytes())?;
    file.sync_all()?;
    fs::rename("cfg.json.new", "cfg.json")?;
    File::open(".")?.sync_all()
}

fn main() -> std::io::Result<()> {
    save("{\"colour\": \"blue\"}")?;
    println!("saved");
    Ok(())
}
