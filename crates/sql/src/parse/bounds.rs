//! Bounds the depth of a statement's tree, which it estimates from the tokens.
//!
//! All code that walks a tree recurses (the parser's own destructor, the planner, its rules, the execution), and `a + a + …`
//! makes a tree as deep as the text is long. So the depth is bounded before there is a tree, without recursion. The estimate is
//! never less than the tree's depth (but for a factor), and is close to it for statements that people write. Operators nest: `a
//! OR b OR …` is as deep as the number of its ORs, plus the deepest of its operands; AND, UNION, JOIN and brackets count alike.
//! Items that are separated by commas stand side by side.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};
use types::{Error, Kind, Result};

/// Greatest depth of a statement's tree, approximately. SQL's threads have stacks for a multiple of it (`sql::STACK_BYTES`);
/// `tests/it/depth.rs` goes up to it with every form.
pub(super) const DEPTH_MAX: usize = 600;
/// SELECTs, tables in FROM and windows of a statement. The planner puts one above the other, wherever they stand.
const RELATIONS_MAX: usize = 1_000;
/// EXCEPTs and INTERSECTs of a statement. Each becomes a join with everything before it, and planning takes minutes for two
/// hundred.
const DIFFERENCES_MAX: usize = 64;
/// Refuses a statement whose tree would be too deep.
pub(super) fn check(tokens: &[TokenWithSpan]) -> Result<()> {
    let mut outer: Vec<BracketFrame> = Vec::new();
    let mut frame = BracketFrame::default();
    let (mut relations, mut differences) = (0usize, 0usize);
    let mut previous = PreviousToken::Nothing;
    for token in tokens {
        let after_operand = matches!(previous, PreviousToken::Operand | PreviousToken::Path);
        previous = match &token.token {
            Token::Whitespace(_) => continue,
            Token::Comma | Token::SemiColon => {
                frame.end_item();
                // Each further table in FROM is joined to those before it.
                relations += usize::from(frame.from);
                frame.joins += usize::from(frame.from);
                PreviousToken::Nothing
            }
            Token::LParen | Token::LBracket | Token::LBrace => {
                frame.operators += 1;
                outer.push(std::mem::take(&mut frame));
                PreviousToken::Nothing
            }
            Token::RParen | Token::RBracket | Token::RBrace => {
                // The parser reports a bracket that was not opened, and a CASE without END.
                while frame.case && !outer.is_empty() {
                    frame = frame.close(outer.pop());
                }
                if !outer.is_empty() {
                    frame = frame.close(outer.pop());
                }
                PreviousToken::Operand
            }
            Token::Period => {
                // `table.column` is one name; each further step nests one level deeper.
                frame.operators += usize::from(previous == PreviousToken::Path);
                PreviousToken::Period
            }
            Token::DoubleColon => {
                frame.operators += 1;
                // The next word is a type's name, even if it is a keyword.
                PreviousToken::Period
            }
            Token::Word(word) if previous == PreviousToken::Period || word.keyword == Keyword::NoKeyword => {
                if previous == PreviousToken::Period {
                    PreviousToken::Path
                } else {
                    PreviousToken::Operand
                }
            }
            Token::Word(word) => {
                let keyword = &word.keyword;
                relations += usize::from(makes_relation(*keyword));
                differences += usize::from(matches!(keyword, Keyword::EXCEPT | Keyword::INTERSECT));
                match keyword {
                    // `a IS DISTINCT FROM b` is an operator.
                    Keyword::FROM => frame.from |= previous != PreviousToken::IsDistinct,
                    Keyword::SELECT | Keyword::WHERE | Keyword::GROUP | Keyword::ORDER | Keyword::SET => {
                        frame.from = false;
                    }
                    _ => {}
                }
                match keyword {
                    Keyword::NULL | Keyword::TRUE | Keyword::FALSE => PreviousToken::Operand,
                    Keyword::CASE => {
                        frame.operators += 1;
                        let case = BracketFrame { case: true, ..BracketFrame::default() };
                        outer.push(std::mem::replace(&mut frame, case));
                        PreviousToken::Nothing
                    }
                    Keyword::END if frame.case && after_operand => {
                        frame = frame.close(outer.pop());
                        PreviousToken::Operand
                    }
                    Keyword::WHEN | Keyword::THEN | Keyword::ELSE if frame.case && after_operand => {
                        frame.end_item();
                        PreviousToken::Nothing
                    }
                    Keyword::AND if after_operand => {
                        frame.end_and();
                        PreviousToken::Nothing
                    }
                    Keyword::OR if after_operand => {
                        frame.end_or();
                        PreviousToken::Nothing
                    }
                    Keyword::JOIN if after_operand => {
                        frame.end_item();
                        frame.joins += 1;
                        PreviousToken::Nothing
                    }
                    Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT if after_operand => {
                        frame.end_select();
                        frame.sets += 1;
                        PreviousToken::Nothing
                    }
                    // Any of these may be an operator or a name: counted as an operator, which is the deeper of the two.
                    keyword => {
                        frame.operators += 1;
                        match keyword {
                            Keyword::IS if after_operand => PreviousToken::Is,
                            Keyword::NOT if previous == PreviousToken::Is => PreviousToken::Is,
                            Keyword::DISTINCT if previous == PreviousToken::Is => PreviousToken::IsDistinct,
                            keyword if expects_operand(*keyword) => PreviousToken::Nothing,
                            _ => PreviousToken::Operand,
                        }
                    }
                }
            }
            Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::DollarQuotedString(_)
            | Token::EscapedStringLiteral(_)
            | Token::UnicodeStringLiteral(_)
            | Token::NationalStringLiteral(_)
            | Token::HexStringLiteral(_)
            | Token::Placeholder(_) => PreviousToken::Operand,
            Token::EOF => break,
            _ => {
                frame.operators += 1;
                PreviousToken::Nothing
            }
        };
        if relations > RELATIONS_MAX {
            return Err(too_large(format!("{RELATIONS_MAX} SELECTs, joins and windows")));
        }
        if differences > DIFFERENCES_MAX {
            return Err(too_large(format!("{DIFFERENCES_MAX} EXCEPTs and INTERSECTs")));
        }
    }
    while !outer.is_empty() {
        frame = frame.close(outer.pop());
    }
    let depth = frame.depth();
    if depth <= DEPTH_MAX {
        return Ok(());
    }
    Err(Error::new(
        Kind::TooLarge,
        format!("the statement's operators and brackets nest {depth} deep; {DEPTH_MAX} are allowed"),
    )
    .hint(
        "write `x IN (…)` instead of many ORs, rows of a table instead of a long sum, or split the statement",
    ))
}

fn too_large(most: String) -> Error {
    Error::new(Kind::TooLarge, format!("the statement has more than {most}")).hint("split it")
}

/// The kind of the previous token.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PreviousToken {
    /// An operator, a separator or an opening bracket: an operand follows, and a keyword may be its name.
    Nothing,
    Operand,
    /// The `.` of a name, or the `::` before the name of a type.
    Period,
    /// A name with a `.` in it.
    Path,
    /// `IS` or `IS NOT` after an operand.
    Is,
    /// `IS DISTINCT` or `IS NOT DISTINCT` after an operand.
    IsDistinct,
}

/// Counts of the tokens between two brackets, or between CASE and END.
#[derive(Default)]
struct BracketFrame {
    /// True for a frame from CASE to END.
    case: bool,
    /// True while commas separate tables.
    from: bool,
    /// UNIONs, and the depth of the deepest SELECT between them.
    sets: usize,
    deepest_select: usize,
    /// JOINs of this SELECT, and the depth of its deepest item.
    joins: usize,
    deepest_item: usize,
    /// ORs of this item, and the depth of the deepest operand of an OR.
    ors: usize,
    deepest_or: usize,
    ands: usize,
    deepest_and: usize,
    /// Other operators since the last AND, and the depth of the deepest bracket among them.
    operators: usize,
    deepest_bracket: usize,
}

impl BracketFrame {
    fn end_part(&mut self) {
        let depth = std::mem::take(&mut self.operators) + std::mem::take(&mut self.deepest_bracket);
        self.deepest_and = self.deepest_and.max(depth);
    }

    fn end_and(&mut self) {
        self.end_part();
        self.ands += 1;
    }

    fn end_ands(&mut self) {
        self.end_part();
        let depth = std::mem::take(&mut self.ands) + std::mem::take(&mut self.deepest_and);
        self.deepest_or = self.deepest_or.max(depth);
    }

    fn end_or(&mut self) {
        self.end_ands();
        self.ors += 1;
    }

    fn end_item(&mut self) {
        self.end_ands();
        let depth = std::mem::take(&mut self.ors) + std::mem::take(&mut self.deepest_or);
        self.deepest_item = self.deepest_item.max(depth);
    }

    fn end_select(&mut self) {
        self.end_item();
        let depth = std::mem::take(&mut self.joins) + std::mem::take(&mut self.deepest_item);
        self.deepest_select = self.deepest_select.max(depth);
    }

    fn depth(mut self) -> usize {
        self.end_select();
        1 + self.sets + self.deepest_select
    }

    /// Ends this frame: returns the enclosing frame, which now contains its depth.
    fn close(self, around: Option<BracketFrame>) -> BracketFrame {
        let depth = self.depth();
        let mut around = around.unwrap_or_default();
        around.deepest_bracket = around.deepest_bracket.max(depth);
        around
    }
}

/// Returns true for a keyword that adds a relation to the plan. A UNION adds none: its sides do.
fn makes_relation(keyword: Keyword) -> bool {
    use Keyword::*;
    matches!(keyword, SELECT | VALUES | TABLE | JOIN | OVER)
}

/// Returns true if an operand follows this keyword, unless it is a name. Such a keyword does not end an operand: the word after
/// it is a name, even `AND`.
fn expects_operand(keyword: Keyword) -> bool {
    use Keyword::*;
    matches!(
        keyword,
        ALL | AND
            | ANY
            | ARRAY
            | AS
            | AT
            | BETWEEN
            | BINARY
            | BY
            | COLLATE
            | DISTINCT
            | DIV
            | ELSE
            | ESCAPE
            | EXCEPT
            | EXISTS
            | EXPLAIN
            | FROM
            | HAVING
            | ILIKE
            | IN
            | INTERSECT
            | INTERVAL
            | IS
            | JOIN
            | LIKE
            | LIMIT
            | MATCH
            | MEMBER
            | NOT
            | OF
            | OFFSET
            | ON
            | OPERATOR
            | OR
            | OVERLAPS
            | PRIOR
            | REGEXP
            | RETURNING
            | RLIKE
            | SELECT
            | SET
            | SIMILAR
            | SOME
            | SYMMETRIC
            | THEN
            | TIME
            | TO
            | UNION
            | USING
            | WHEN
            | WHERE
            | XOR
            | ZONE
    )
}
