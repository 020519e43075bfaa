use std::fs;

fn save(settings: &str) -> std::io::Result<()> {
    fs::write("cfg.json", settings)
}

fn main() -> std::io::Result<()> {
    save("{\"colour\": \"blue\"}")?;
    println!("saved");
    Ok(())
}
