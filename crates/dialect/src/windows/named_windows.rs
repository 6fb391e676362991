//! Windows may build on a window of the WINDOW clause: `OVER (w ORDER BY x)`, `WINDOW v AS (w ORDER BY x)`. DataFusion only
//! supports `OVER w`; for the others it ignores the named window.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, NamedWindowExpr, OrderByKind, Query, Select, SetExpr, Statement, Value as SqlValue, Visit,
    VisitMut, Visitor, VisitorMut, WindowFrame, WindowSpec, WindowType, visit_expressions_mut,
};
use types::{Error, Result};

/// Writes such windows out, by the rules of the SQL standard: a window takes the partitions of the window that it builds on, may
/// add an order if that has none, and has its own frame.
pub fn expand(statement: &mut Statement) -> Result<()> {
    struct WindowExpander;
    impl VisitorMut for WindowExpander {
        type Break = Error;
        /// Inner queries come first: a window belongs to the SELECT that names it.
        fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
            let spelled = in_selects(&mut query.body).and_then(|()| {
                let SetExpr::Select(select) = query.body.as_ref() else { return Ok(()) };
                let order = query.order_by.as_mut().map(|order| &mut order.kind);
                let Some(OrderByKind::Expressions(order)) = order else { return Ok(()) };
                order.iter_mut().try_for_each(|by| in_expressions(&mut by.expr, &windows_of(select)))
            });
            spelled.map_or_else(ControlFlow::Break, ControlFlow::Continue)
        }
    }
    match statement.visit(&mut WindowExpander) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// The name and the complete definition of a window of the WINDOW clause.
type Window = (Ident, WindowSpec);

/// Refuses a frame bound beyond int64, with which DataFusion would overflow.
fn check_frame(frame: &WindowFrame) -> Result<()> {
    struct Numbers;
    impl Visitor for Numbers {
        type Break = Error;

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Error> {
            let Expr::Value(value) = expr else { return ControlFlow::Continue(()) };
            let SqlValue::Number(digits, _) = &value.value else { return ControlFlow::Continue(()) };
            let is_unsigned = digits.parse::<u64>().is_ok_and(|number| i64::try_from(number).is_err());
            match is_unsigned {
                true => ControlFlow::Break(
                    Error::invalid(format!("a frame does not reach {digits} rows"))
                        .hint("UNBOUNDED PRECEDING and UNBOUNDED FOLLOWING reach all rows"),
                ),
                false => ControlFlow::Continue(()),
            }
        }
    }
    let ends = [Some(&frame.start_bound), frame.end_bound.as_ref()];
    let wrong = ends.into_iter().flatten().find_map(|end| end.visit(&mut Numbers).break_value());
    wrong.map_or(Ok(()), Err)
}

fn in_selects(body: &mut SetExpr) -> Result<()> {
    match body {
        SetExpr::SetOperation { left, right, .. } => {
            in_selects(left)?;
            in_selects(right)
        }
        SetExpr::Select(select) => {
            let mut known: Vec<Window> = Vec::new();
            for window in &mut select.named_window {
                let spec = match &mut window.1 {
                    NamedWindowExpr::NamedWindow(name) => find(&known, name)?.clone(),
                    NamedWindowExpr::WindowSpec(spec) => {
                        spec.window_frame.as_ref().map_or(Ok(()), check_frame)?;
                        complete(spec, &known)?;
                        spec.clone()
                    }
                };
                window.1 = NamedWindowExpr::WindowSpec(spec.clone());
                known.push((window.0.clone(), spec));
            }
            in_expressions(&mut select.projection, &known)
        }
        _ => Ok(()),
    }
}

fn windows_of(select: &Select) -> Vec<Window> {
    let spec = |window: &NamedWindowExpr| match window {
        NamedWindowExpr::WindowSpec(spec) => Some(spec.clone()),
        NamedWindowExpr::NamedWindow(_) => None,
    };
    select.named_window.iter().filter_map(|window| Some((window.0.clone(), spec(&window.1)?))).collect()
}

fn in_expressions(node: &mut impl VisitMut, known: &[Window]) -> Result<()> {
    let visited = visit_expressions_mut(node, |expr| match expr {
        Expr::Function(function) => match &mut function.over {
            Some(WindowType::WindowSpec(spec)) => {
                let checked = spec.window_frame.as_ref().map_or(Ok(()), check_frame);
                let spelled = checked.and_then(|()| complete(spec, known));
                spelled.map_or_else(ControlFlow::Break, ControlFlow::Continue)
            }
            _ => ControlFlow::Continue(()),
        },
        _ => ControlFlow::Continue(()),
    });
    match visited {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Completes a window by the definition that it builds on.
fn complete(spec: &mut WindowSpec, known: &[Window]) -> Result<()> {
    let Some(name) = spec.window_name.take() else { return Ok(()) };
    let base = find(known, &name)?;
    let name = types::name::printable(&name.value);
    let refused = |what: &str| {
        Error::invalid(format!("a window that builds on `{name}` {what}"))
            .hint("write the whole window between the brackets of OVER")
    };
    if base.window_frame.is_some() {
        return Err(refused("cannot take its frame over: `OVER` without brackets can"));
    }
    if !spec.partition_by.is_empty() {
        return Err(refused("cannot have a PARTITION BY of its own"));
    }
    if !base.order_by.is_empty() && !spec.order_by.is_empty() {
        return Err(refused("cannot have an ORDER BY of its own, because its base has one"));
    }
    spec.partition_by = base.partition_by.clone();
    if spec.order_by.is_empty() {
        spec.order_by = base.order_by.clone();
    }
    Ok(())
}

fn find<'a>(known: &'a [Window], name: &Ident) -> Result<&'a WindowSpec> {
    let folded = |name: &Ident| match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    };
    let found = known.iter().find(|(window, _)| folded(window) == folded(name));
    found.map(|(_, spec)| spec).ok_or_else(|| {
        Error::invalid(format!("there is no window `{}`", types::name::printable(&name.value)))
            .hint("name it in the WINDOW clause, before what builds on it")
    })
}
