//! Pictures: lines over the number of files, both axes logarithmic, as SVG.

use std::fmt::Write as _;

use crate::report::Line;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 44.0;
/// Told apart by people who see few colours as well.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// Draws `lines` under `title`; `unit` is that of the values.
pub fn svg(title: &str, unit: &str, lines: &[&Line]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let x = Axis::over(points().map(|point| point.0), LEFT, WIDTH - RIGHT);
    let y = Axis::over(points().map(|point| point.1), HEIGHT - BOTTOM, TOP);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{title}</text>\n"
    );
    for (value, at) in x.decades() {
        let _ = writeln!(
            out,
            "<path d=\"M{at:.1} {TOP}V{}\" stroke=\"#ddd\"/><text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            HEIGHT - BOTTOM,
            HEIGHT - BOTTOM + 16.0,
            plain(value)
        );
    }
    for (value, at) in y.decades() {
        let _ = writeln!(
            out,
            "<path d=\"M{LEFT} {at:.1}H{}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{} {unit}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            plain(value)
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">files</text>",
        f64::midpoint(LEFT, WIDTH - RIGHT),
        HEIGHT - 8.0
    );
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let mut points = line.points.clone();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut path = String::new();
        for (n, (files, value)) in points.iter().enumerate() {
            let (px, py) = (x.at(*files), y.at(*value));
            let _ = write!(path, "{}{px:.1} {py:.1}", if n == 0 { 'M' } else { 'L' });
            let _ = writeln!(
                out,
                "<circle cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"3\" fill=\"{colour}\"/>"
            );
        }
        let end = points.last().map_or(TOP, |point| y.at(point.1));
        let _ = writeln!(
            out,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <text x=\"{}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>",
            WIDTH - RIGHT + 8.0,
            end + 4.0,
            line.name
        );
    }
    out.push_str("</svg>\n");
    out
}

/// From values to places, by their logarithms.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let low = low.max(1e-3).log10().floor();
        let high = high.max(1e-3).log10().ceil().max(low + 1.0);
        Self { low, high, from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let part = (value.max(1e-3).log10() - self.low) / (self.high - self.low);
        self.from + part * (self.to - self.from)
    }

    fn decades(&self) -> Vec<(f64, f64)> {
        let all = self.low as i32..=self.high as i32;
        all.map(|power| 10f64.powi(power))
            .map(|value| (value, self.at(value)))
            .collect()
    }
}

fn plain(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", v / 1e6),
        v if v >= 1e3 => format!("{}k", v / 1e3),
        v => format!("{v}"),
    }
}
