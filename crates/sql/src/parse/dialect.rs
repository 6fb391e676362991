//! PostgreSQL's dialect with a bound on the parser's work.
//!
//! Where a word may begin a special expression or be a name (`ARRAY[…]`, `CAST(…)`), the parser tries one after the
//! other. What is wrong far inside such brackets is then found twice on every level: 2ⁿ times. So every beginning of
//! an expression is counted, and beyond a bound none is read any more: what is open falls back at once.

use std::any::TypeId;
use std::cell::Cell;

use sqlparser::ast::Expr;
use sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};

/// See the module.
#[derive(Debug)]
pub(super) struct Bounded {
    inner: PostgreSqlDialect,
    left: Cell<usize>,
    exhausted: Cell<bool>,
    versions: bool,
    shapes: bool,
}

impl Bounded {
    /// `steps_max`: beginnings of expressions that are read.
    pub fn new(steps_max: usize) -> Self {
        Bounded {
            inner: PostgreSqlDialect {},
            left: Cell::new(steps_max),
            exhausted: Cell::new(false),
            versions: false,
            shapes: true,
        }
    }

    /// Without the operators of geometric shapes, one of which begins as `a <-1` does.
    pub fn without_shapes(self) -> Self {
        Bounded { shapes: false, ..self }
    }

    /// Whether a table may be followed by a point in time.
    pub fn with_versions(self, versions: bool) -> Self {
        Bounded { versions, ..self }
    }

    /// Whether an expression was not read because there were too many. Whatever error the parser gave, this is why.
    pub fn exhausted(&self) -> bool {
        self.exhausted.get()
    }
}

/// Methods that answer as PostgreSQL's dialect does.
macro_rules! as_postgres {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($argument: $kind),*) -> $result {
            self.inner.$name($($argument),*)
        })*
    };
}

impl Dialect for Bounded {
    fn dialect(&self) -> TypeId {
        TypeId::of::<PostgreSqlDialect>()
    }

    fn parse_prefix(&self, _: &mut Parser) -> Option<Result<Expr, ParserError>> {
        match self.left.get().checked_sub(1) {
            Some(left) => {
                self.left.set(left);
                None
            }
            None => {
                self.exhausted.set(true);
                Some(Err(ParserError::RecursionLimitExceeded))
            }
        }
    }

    /// The parser takes all that follows for the right side of IS DISTINCT FROM: `a IS DISTINCT FROM b AND c`.
    fn parse_infix(
        &self,
        parser: &mut Parser,
        expr: &Expr,
        precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        use Keyword::{DISTINCT, FROM, IS, NOT};
        let is_distinct = parser.parse_keywords(&[IS, DISTINCT, FROM]);
        if !is_distinct && !parser.parse_keywords(&[IS, NOT, DISTINCT, FROM]) {
            return None;
        }
        let left = Box::new(expr.clone());
        Some(parser.parse_subexpr(precedence).map(|right| match is_distinct {
            true => Expr::IsDistinctFrom(left, Box::new(right)),
            false => Expr::IsNotDistinctFrom(left, Box::new(right)),
        }))
    }

    /// PostgreSQL has it for `json_object('a': 1)`, which does not exist here; with it, every argument of a function
    /// is read twice, and within nested functions 2ⁿ times.
    fn supports_named_fn_args_with_expr_name(&self) -> bool {
        false
    }

    fn supports_geometric_types(&self) -> bool {
        self.shapes
    }

    fn supports_table_versioning(&self) -> bool {
        self.versions
    }

    as_postgres! {
        identifier_quote_style(identifier: &str) -> Option<char>;
        is_delimited_identifier_start(ch: char) -> bool;
        is_identifier_start(ch: char) -> bool;
        is_identifier_part(ch: char) -> bool;
        supports_unicode_string_literal() -> bool;
        is_custom_operator_part(ch: char) -> bool;
        get_next_precedence(parser: &Parser) -> Option<Result<u8, ParserError>>;
        supports_filter_during_aggregation() -> bool;
        supports_group_by_expr() -> bool;
        prec_value(prec: Precedence) -> u8;
        allow_extract_custom() -> bool;
        allow_extract_single_quotes() -> bool;
        supports_create_index_with_clause() -> bool;
        supports_explain_with_utility_options() -> bool;
        supports_listen_notify() -> bool;
        supports_factorial_operator() -> bool;
        supports_bitwise_shift_operators() -> bool;
        supports_comment_on() -> bool;
        supports_load_extension() -> bool;
        supports_named_fn_args_with_colon_operator() -> bool;
        supports_empty_projections() -> bool;
        supports_nested_comments() -> bool;
        supports_string_escape_constant() -> bool;
        supports_numeric_literal_underscores() -> bool;
        supports_array_typedef_with_brackets() -> bool;
        supports_set_names() -> bool;
        supports_alter_column_type_using() -> bool;
        supports_notnull_operator() -> bool;
        supports_interval_options() -> bool;
    }
}
