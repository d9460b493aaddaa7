//! Integer expressions of the template layer: `OUT - 1`, `i * STRIDE + k < KERNEL`.

/// Binary operators by precedence, lowest first; within a level the longer ones first.
const LEVELS: [&[&str]; 5] =
    [&["||"], &["&&"], &["==", "!=", "<=", ">=", "<", ">"], &["+", "-"], &["*", "/", "%"]];

/// Returns the value of `text`, with the values of names from `lookup`. Comparisons return 0 or 1.
pub(crate) fn evaluate(text: &str, lookup: &dyn Fn(&str) -> Option<i64>) -> Result<i64, String> {
    let mut parser = Parser { rest: text.trim(), lookup };
    let value = parser.level(0)?;
    if parser.rest.is_empty() { Ok(value) } else { Err(format!("unexpected {:?} in {text:?}", parser.rest)) }
}

struct Parser<'a> {
    rest: &'a str,
    lookup: &'a dyn Fn(&str) -> Option<i64>,
}

impl Parser<'_> {
    fn level(&mut self, level: usize) -> Result<i64, String> {
        let Some(operators) = LEVELS.get(level) else { return self.operand() };
        let mut left = self.level(level + 1)?;
        while let Some(operator) = operators.iter().find(|o| self.rest.starts_with(**o)) {
            self.skip(operator.len());
            let right = self.level(level + 1)?;
            left = apply(operator, left, right)
                .ok_or_else(|| format!("{left} {operator} {right} is undefined"))?;
        }
        Ok(left)
    }

    fn operand(&mut self) -> Result<i64, String> {
        if let Some(after) = self.rest.strip_prefix('!') {
            self.rest = after.trim_start();
            return Ok(i64::from(self.operand()? == 0));
        }
        if let Some(after) = self.rest.strip_prefix('(') {
            self.rest = after.trim_start();
            let value = self.level(0)?;
            if !self.rest.starts_with(')') {
                return Err(format!("expected ) before {:?}", self.rest));
            }
            self.skip(1);
            return Ok(value);
        }
        let end = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let word = self.rest.get(..end).unwrap_or("");
        let value = match word.parse() {
            Ok(number) => number,
            Err(_) => (self.lookup)(word).ok_or_else(|| format!("unknown name {word:?}"))?,
        };
        self.skip(end);
        Ok(value)
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or("").trim_start();
    }
}

fn apply(operator: &str, a: i64, b: i64) -> Option<i64> {
    match operator {
        "||" => Some(i64::from(a != 0 || b != 0)),
        "&&" => Some(i64::from(a != 0 && b != 0)),
        "==" => Some(i64::from(a == b)),
        "!=" => Some(i64::from(a != b)),
        "<=" => Some(i64::from(a <= b)),
        ">=" => Some(i64::from(a >= b)),
        "<" => Some(i64::from(a < b)),
        ">" => Some(i64::from(a > b)),
        "+" => a.checked_add(b),
        "-" => a.checked_sub(b),
        "*" => a.checked_mul(b),
        "/" => a.checked_div(b),
        "%" => a.checked_rem(b),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::evaluate;

    fn check(text: &str, expected: Result<i64, &str>) {
        let lookup = |name: &str| (name == "N").then_some(3);
        assert_eq!(
            evaluate(text, &lookup).as_ref().map_err(String::as_str),
            expected.as_ref().map_err(|e| *e)
        );
    }

    #[test]
    fn computes() {
        check("1 + 2 * N", Ok(7));
        check("(1 + 2) * N", Ok(9));
        check("10 - 2 - N", Ok(5));
        check("7 / 2 % 2", Ok(1));
        check("N == 3 && !(N < 2) || 0", Ok(1));
        check("N >= 4", Ok(0));
    }

    #[test]
    fn errors_name_the_operand() {
        check("M", Err("unknown name \"M\""));
        check("(1", Err("expected ) before \"\""));
        check("1 2", Err("unexpected \"2\" in \"1 2\""));
        check("1 / 0", Err("1 / 0 is undefined"));
        check("", Err("unknown name \"\""));
    }
}
