//! `stepback doctor`

use owo_colors::Style;
use serde_json::json;

use crate::app::App;
use crate::doctor::{self, Examined, Finding, Severity};
use crate::error::Result;
use crate::render::path::one_line;
use crate::render::{count, paint};

pub fn run(app: &App) -> Result<u8> {
    let checks = doctor::examine(app);
    let findings: Vec<&Finding> = checks.iter().flat_map(|made| &made.findings).collect();
    let attention = findings.iter().filter(|f| f.severity > Severity::Note).count();
    if app.printer.json {
        let list: Vec<_> = findings
            .iter()
            .map(|f| json!({"check": f.check, "severity": f.severity.name(), "message": f.message, "hint": f.hint}))
            .collect();
        app.printer
            .json(&json!({"ok": attention == 0, "findings": list}))?;
    } else {
        let mut text = String::new();
        for Examined {
            check,
            words,
            skipped,
            findings,
        } in &checks
        {
            if *skipped {
                text += &line(app, "skipped", Style::new().yellow(), check, words);
            } else if findings.is_empty() {
                text += &line(app, "ok", Style::new().green(), check, words);
            }
            for f in findings {
                let style = match f.severity {
                    Severity::Note => Style::new().cyan(),
                    Severity::Warning => Style::new().yellow(),
                    Severity::Error => Style::new().red().bold(),
                };
                text += &line(app, f.severity.name(), style, check, &f.message);
                text += &format!("         hint: {}\n", one_line(&f.hint));
            }
        }
        text += &match attention {
            0 => "all is well\n".to_owned(),
            n => format!(
                "{}\n",
                count(n as u64, "thing needs attention", "things need attention")
            ),
        };
        app.printer.text(&text)?;
    }
    Ok(u8::from(attention > 0))
}

fn line(app: &App, word: &str, style: Style, check: &str, message: &str) -> String {
    // Padded before it is painted: colours have a length of their own.
    let word = paint(app.printer.color(), style, &format!("{word:<9}"));
    format!("{word}{check}: {}\n", one_line(message))
}
