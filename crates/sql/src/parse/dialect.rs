//! PostgreSQL's dialect with a bound on the parser's work.
//!
//! Some words may be a name or begin a special expression (`ARRAY[…]`, `CAST(…)`); the parser tries one after the other. An error
//! deep inside such brackets is then found twice on every level: 2ⁿ times. So the dialect counts the beginnings of expressions,
//! and refuses to read any more after a limit: all open attempts then fail at once.

use std::any::TypeId;
use std::cell::Cell;

use sqlparser::ast::Expr;
use sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};

/// PostgreSQL's dialect with a limit on the expressions that the parser begins; see the module.
#[derive(Debug)]
pub(super) struct BoundedDialect {
    inner: PostgreSqlDialect,
    steps_left: Cell<usize>,
    exhausted: Cell<bool>,
    versions: bool,
    shapes: bool,
}

impl BoundedDialect {
    /// Makes a dialect that lets the parser begin `steps_max` expressions.
    pub fn new(steps_max: usize) -> Self {
        BoundedDialect {
            inner: PostgreSqlDialect {},
            steps_left: Cell::new(steps_max),
            exhausted: Cell::new(false),
            versions: false,
            shapes: true,
        }
    }

    /// Switches off the operators of geometric shapes: one of them begins like `a <-1`.
    pub fn without_shapes(self) -> Self {
        BoundedDialect { shapes: false, ..self }
    }

    /// Lets a point in time follow a table, or not.
    pub fn with_versions(self, versions: bool) -> Self {
        BoundedDialect { versions, ..self }
    }

    /// Returns true if the limit stopped the parser: this is then the true reason of its error, whatever the error says.
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

impl Dialect for BoundedDialect {
    fn dialect(&self) -> TypeId {
        TypeId::of::<PostgreSqlDialect>()
    }

    fn parse_prefix(&self, _: &mut Parser) -> Option<Result<Expr, ParserError>> {
        match self.steps_left.get().checked_sub(1) {
            Some(left) => {
                self.steps_left.set(left);
                None
            }
            None => {
                self.exhausted.set(true);
                Some(Err(ParserError::RecursionLimitExceeded))
            }
        }
    }

    /// Parses IS [NOT] DISTINCT FROM. The parser's own code would take `b AND c` for the right side of `a IS DISTINCT FROM b AND
    /// c`.
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
        Some(parser.parse_subexpr(precedence).map(|right| {
            if is_distinct {
                Expr::IsDistinctFrom(left, Box::new(right))
            } else {
                Expr::IsNotDistinctFrom(left, Box::new(right))
            }
        }))
    }

    /// Returns false. PostgreSQL's dialect allows `json_object('a': 1)`, which does not exist here, and would then read every
    /// argument of a function twice: 2ⁿ times in nested functions.
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
