//! Functions, operators and casts that DataFusion spells differently: `mod(a, b)` becomes `a % b`, `every` becomes `bool_and`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, CastKind, CharacterLength, DataType as SqlType, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArguments, Ident, ObjectNamePart, Statement, Subscript, UnaryOperator, Value,
    VisitMut, VisitorMut,
};
use sql::ast::{binary, bracketed, call};
use types::{Error, Result, name};

/// Functions that differ only by name: PostgreSQL's and DataFusion's.
const NAMES: [(&str, &str); 4] =
    [("ceiling", "ceil"), ("every", "bool_and"), ("sign", "signum"), ("variance", "var_samp")];

/// Rewrites a statement. Runs after names are bound, so that a result column keeps the name of the original call.
pub fn rewrite(statement: &mut Statement) -> Result<()> {
    match statement.visit(&mut SpellingRewriter) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct SpellingRewriter;

impl VisitorMut for SpellingRewriter {
    type Break = Error;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        sign_of_base(expr);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        match expr {
            Expr::Function(function) => {
                if let Some(spelled) = rewrite_function(function) {
                    *expr = spelled;
                }
            }
            Expr::BinaryOp { left, op: BinaryOperator::PGExp, right } => {
                *expr = call("power", vec![(**left).clone(), (**right).clone()]);
            }
            Expr::Substring { expr: text, substring_from: Some(pattern), substring_for: None, .. }
                if is_text(pattern) =>
            {
                *expr = first_of(call("regexp_match", vec![(**text).clone(), (**pattern).clone()]));
            }
            Expr::Cast {
                kind: CastKind::Cast | CastKind::DoubleColon,
                expr: inner,
                data_type: SqlType::JSON | SqlType::JSONB,
                ..
            } => {
                if let Err(error) = check_json(inner) {
                    return ControlFlow::Break(error);
                }
            }
            Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, data_type, .. } => {
                if let Some(length) = text_length(data_type) {
                    *data_type = SqlType::Text;
                    let length = Expr::Value(Value::Number(length.to_string(), false).into());
                    *expr = call("left", vec![expr.clone(), length]);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Returns the number of characters to which a cast truncates a text.
fn text_length(data_type: &SqlType) -> Option<u64> {
    match data_type {
        SqlType::Varchar(Some(CharacterLength::IntegerLength { length, .. }))
        | SqlType::CharacterVarying(Some(CharacterLength::IntegerLength { length, .. }))
        | SqlType::CharVarying(Some(CharacterLength::IntegerLength { length, .. }))
        | SqlType::Char(Some(CharacterLength::IntegerLength { length, .. }))
        | SqlType::Character(Some(CharacterLength::IntegerLength { length, .. })) => Some(*length),
        SqlType::Char(None) | SqlType::Character(None) => Some(1),
        _ => None,
    }
}

/// Rewrites `-(2 ^ 2)` to `(-2) ^ 2`: the parser binds `^` tighter than a sign, PostgreSQL does not.
fn sign_of_base(expr: &mut Expr) {
    let Expr::UnaryOp { op: op @ (UnaryOperator::Minus | UnaryOperator::Plus), expr: inner } = expr else {
        return;
    };
    if !matches!(**inner, Expr::BinaryOp { op: BinaryOperator::PGExp, .. }) {
        return;
    }
    let op = *op;
    let mut power = (**inner).clone();
    let mut base = &mut power;
    while let Expr::BinaryOp { left, op: BinaryOperator::PGExp, .. } = base {
        base = left;
    }
    let signed = Expr::UnaryOp { op, expr: Box::new(base.clone()) };
    *base = signed;
    *expr = power;
}

fn rewrite_function(function: &mut Function) -> Option<Expr> {
    let [ObjectNamePart::Identifier(called)] = function.name.0.as_mut_slice() else { return None };
    let lower = called.value.to_ascii_lowercase();
    if let Some((_, theirs)) = NAMES.iter().find(|(ours, _)| *ours == lower) {
        *called = Ident::new(*theirs);
        return None;
    }
    let FunctionArguments::List(list) = &function.args else { return None };
    let is_plain = function.over.is_none()
        && function.filter.is_none()
        && list.clauses.is_empty()
        && list.duplicate_treatment.is_none();
    let value = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    let args: Vec<Expr> = list.args.iter().map(value).collect::<Option<_>>().filter(|_| is_plain)?;
    match (lower.as_str(), args.as_slice()) {
        ("mod", [a, b]) => Some(bracketed(binary(a.clone(), BinaryOperator::Modulo, b.clone()))),
        // The whole pattern becomes the first group, so that groups within it do not matter.
        ("regexp_substr", [text, pattern]) => {
            let group = concat(concat(quoted("("), pattern.clone()), quoted(")"));
            Some(first_of(call("regexp_match", vec![text.clone(), group])))
        }
        ("quote_literal", [value]) => Some(quote_literal(value.clone())),
        // DataFusion's `atan2` of integers would be a float32.
        ("atan2", [y, x]) => Some(call("atan2", [y, x].map(|arg| cast(arg.clone(), SqlType::Float8)).into())),
        _ => None,
    }
}

/// Puts the text in quotes and doubles the quotes in it. A text with backslashes becomes `E'…'`, with doubled backslashes.
fn quote_literal(value: Expr) -> Expr {
    let text = cast(value, SqlType::Text);
    let doubled = |text: Expr, sign: &str| call("replace", vec![text, quoted(sign), quoted(&sign.repeat(2))]);
    let inside = doubled(doubled(text, "'"), "\\");
    let whole = concat(concat(quoted("'"), inside), quoted("'"));
    call("regexp_replace", vec![whole, quoted(r"(?s)^(.*\\)"), quoted(r"E\1")])
}

fn cast(expr: Expr, data_type: SqlType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(expr), data_type, array: false, format: None }
}

fn first_of(list: Expr) -> Expr {
    let index = Expr::Value(Value::Number("1".into(), false).into());
    let access_chain = vec![AccessExpr::Subscript(Subscript::Index { index })];
    Expr::CompoundFieldAccess { root: Box::new(bracketed(list)), access_chain }
}

fn concat(left: Expr, right: Expr) -> Expr {
    bracketed(binary(left, BinaryOperator::StringConcat, right))
}

fn quoted(text: &str) -> Expr {
    Expr::Value(Value::SingleQuotedString(text.to_owned()).into())
}

fn is_text(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if matches!(value.value, Value::SingleQuotedString(_)))
}

/// Checks that a text literal cast to json is valid JSON, as it is checked where it is stored.
fn check_json(expr: &Expr) -> Result<()> {
    let Expr::Value(value) = expr else { return Ok(()) };
    let Value::SingleQuotedString(text) = &value.value else { return Ok(()) };
    match serde_json::from_str::<serde::de::IgnoredAny>(text) {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::invalid(format!("`{}` is not a valid json", name::printable(text)))
            .hint(error.to_string())),
    }
}
